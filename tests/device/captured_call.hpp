#pragma once

#include <vector>

#include "tests/device/gpu_case.hpp"

namespace megamoe {

/// The staging and the call of a case, captured: one graph per stream. They stage what lies in the
/// case's buffers at each replay, with the token counts of the capture.
class CapturedCall {
 public:
  CapturedCall(GpuCase& layer, const ForwardOptions& options) : layer_(&layer) {
    const std::size_t streams = layer.streams().size();
    for (std::size_t i = 0; i < streams; ++i) {
      const cuda::DeviceGuard guard(layer.device(static_cast<int>(i)));
      cuda::check(cudaStreamBeginCapture(stream(i), cudaStreamCaptureModeThreadLocal), "capture");
    }
    layer.start_stage();
    layer.start_call_only(options);
    // All captures end before the first graph is instantiated: a thread that captures may not.
    std::vector<cudaGraph_t> graphs(streams);
    for (std::size_t i = 0; i < streams; ++i) {
      const cuda::DeviceGuard guard(layer.device(static_cast<int>(i)));
      cuda::check(cudaStreamEndCapture(stream(i), &graphs[i]), "end of the capture");
    }
    for (std::size_t i = 0; i < streams; ++i) {
      const cuda::DeviceGuard guard(layer.device(static_cast<int>(i)));
      cudaGraphExec_t executable = nullptr;
      cuda::check(cudaGraphInstantiate(&executable, graphs[i], 0), "cudaGraphInstantiate");
      cudaGraphDestroy(graphs[i]);
      graphs_.push_back(executable);
    }
  }
  CapturedCall(const CapturedCall&) = delete;
  CapturedCall& operator=(const CapturedCall&) = delete;
  ~CapturedCall() {
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  }

  void start_replay() {
    for (std::size_t i = 0; i < graphs_.size(); ++i) {
      const cuda::DeviceGuard guard(layer_->device(static_cast<int>(i)));
      cuda::check(cudaGraphLaunch(graphs_[i], stream(i)), "cudaGraphLaunch");
    }
  }
  /// Waits for what was started on the case's streams.
  void wait() const {
    for (std::size_t i = 0; i < graphs_.size(); ++i)
      cuda::check(cudaStreamSynchronize(stream(i)), "replays");
  }

 private:
  [[nodiscard]] cudaStream_t stream(std::size_t i) const {
    return layer_->stream(static_cast<int>(i));
  }

  GpuCase* layer_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace megamoe
