#pragma once

#include <span>
#include <vector>

#include "host/cuda/runtime.hpp"

namespace megamoe::cli {

/// Graphs of one call, one per stream.
class CallGraphs {
 public:
  /// Ends the captures of all streams. Instantiating waits until none is left: it is refused while
  /// a thread captures anything.
  CallGraphs(std::span<const cudaStream_t> streams, std::span<const int> devices) {
    for (const cudaStream_t stream : streams)
      cuda::check(cudaStreamEndCapture(stream, &graphs_.emplace_back(nullptr)), "end of a capture");
    for (std::size_t s = 0; s < streams.size(); ++s) {
      const cuda::DeviceGuard guard(devices[s]);
      cuda::check(cudaGraphInstantiate(&executables_.emplace_back(nullptr), graphs_[s], 0),
                  "cudaGraphInstantiate");
    }
  }
  CallGraphs(const CallGraphs&) = delete;
  CallGraphs& operator=(const CallGraphs&) = delete;
  ~CallGraphs() {
    for (cudaGraphExec_t executable : executables_)
      if (executable != nullptr) cudaGraphExecDestroy(executable);
    for (cudaGraph_t graph : graphs_)
      if (graph != nullptr) cudaGraphDestroy(graph);
  }
  [[nodiscard]] cudaGraphExec_t get(std::size_t stream) const { return executables_[stream]; }

 private:
  std::vector<cudaGraph_t> graphs_;
  std::vector<cudaGraphExec_t> executables_;
};

}  // namespace megamoe::cli
