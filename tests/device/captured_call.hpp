#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tests/device/gpu_case.hpp"

namespace megamoe {

/// What `start` puts on the streams of these ranks of a case, captured: one graph per stream. A
/// replay reads what lies in the case's buffers then, with the token counts of the capture.
class CapturedWork {
 public:
  CapturedWork(GpuCase& layer, std::vector<int> ranks, const std::function<void()>& start)
      : layer_(&layer), ranks_(std::move(ranks)) {
    for (const int rank : ranks_) {
      const cuda::DeviceGuard guard(layer.device(rank));
      cuda::check(cudaStreamBeginCapture(layer.stream(rank), cudaStreamCaptureModeThreadLocal),
                  "capture");
    }
    start();
    // All captures end before the first graph is instantiated: a thread that captures may not.
    std::vector<cudaGraph_t> graphs;
    for (const int rank : ranks_) {
      const cuda::DeviceGuard guard(layer.device(rank));
      cuda::check(cudaStreamEndCapture(layer.stream(rank), &graphs.emplace_back()),
                  "end of the capture");
    }
    for (std::size_t i = 0; i < graphs.size(); ++i) {
      const cuda::DeviceGuard guard(layer.device(ranks_[i]));
      cuda::check(cudaGraphInstantiate(&graphs_.emplace_back(), graphs[i], 0),
                  "cudaGraphInstantiate");
      cudaGraphDestroy(graphs[i]);
    }
  }
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;
  ~CapturedWork() {
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  }

  void start_replay() {
    for (std::size_t i = 0; i < graphs_.size(); ++i) {
      const cuda::DeviceGuard guard(layer_->device(ranks_[i]));
      cuda::check(cudaGraphLaunch(graphs_[i], layer_->stream(ranks_[i])), "cudaGraphLaunch");
    }
  }
  /// Waits for what was started on these streams.
  void wait() const {
    for (const int rank : ranks_)
      cuda::check(cudaStreamSynchronize(layer_->stream(rank)), "replays");
  }
  void replay() {
    start_replay();
    wait();
  }

 private:
  GpuCase* layer_;
  std::vector<int> ranks_;
  std::vector<cudaGraphExec_t> graphs_;
};

/// The staging and the call of all ranks, y filled with NaN in between or left as it is.
class CapturedCall : public CapturedWork {
 public:
  enum class Y { cleared, kept };
  CapturedCall(GpuCase& layer, const ForwardOptions& options, Y y = Y::kept)
      : CapturedWork(layer, layer.launching_ranks(), [&] {
          layer.start_stage();
          y == Y::cleared ? layer.start_call(options) : layer.start_call_only(options);
        }) {}
};

}  // namespace megamoe
