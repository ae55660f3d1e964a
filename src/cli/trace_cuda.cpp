#include <fmt/format.h>

#include "cli/gpu_run.hpp"
#include "cli/run_backend.hpp"
#include "cli/run_cuda.hpp"
#include "cli/trace_request.hpp"
#include "host/devices.hpp"
#include "host/layer_state.hpp"

namespace megamoe::cli {
namespace {

/// Memory on a rank's GPU in which its CTAs record, for as long as this object lives.
class Recording {
 public:
  Recording(Layer& layer, int device, int capacity)
      : layer_(layer),
        ctas_(sms_of(device)),
        capacity_(capacity),
        buffer_(device, events() * sizeof(TraceEvent)) {
    LayerAccess::state(layer_).trace = {.events = reinterpret_cast<TraceEvent*>(buffer_.data()),
                                        .lists = kMaxTraceLists,
                                        .capacity = static_cast<std::uint32_t>(capacity)};
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() { LayerAccess::state(layer_).trace = {}; }

  /// Adds what was recorded; times from this rank's first event if `own_zero`.
  void append_to(TracedCall& call, bool own_zero) const {
    std::vector<TraceEvent> recorded(events());
    cuda::check(cudaMemcpy(recorded.data(), buffer_.data(), recorded.size() * sizeof(TraceEvent),
                           cudaMemcpyDefault),
                "reading the events");
    TracedCall own;
    append_lists(own, layer_.rank(), recorded, ctas_, kMaxTraceLists, capacity_);
    // One nanosecond later than zero, which marks the absence of events.
    const std::uint64_t zero = own_zero ? time_range(own).first_ns - 1 : 0;
    for (TraceList& list : own.lists) {
      for (TraceEvent& event : list.events) event.ns -= zero;
      call.lists.push_back(std::move(list));
    }
    call.full_lists += own.full_lists;
  }

 private:
  static int sms_of(int device) {
    int sms = 0;
    cuda::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
                "counting SMs");
    return sms;
  }
  /// A rank has at most one CTA per SM.
  [[nodiscard]] std::size_t events() const {
    return static_cast<std::size_t>(ctas_) * kMaxTraceLists * static_cast<std::size_t>(capacity_);
  }

  Layer& layer_;
  int ctas_;
  int capacity_;
  cuda::DeviceBuffer buffer_;
};

}  // namespace

TracedCall trace_call(const TraceRequest& request, Io& io) {
  const Problem problem = resolve_run_shape(request.run, request.run.problem).problem;
  if (const std::string why = why_too_few_gpus(find_devices(), request.run.virtual_ranks, problem);
      !why.empty())
    throw Error(ErrorCode::unsupported, "tracing needs GPUs: " + why);
  const RunCase run = make_run_case(request.run, io);
  GpuRun gpus(run, cuda_memory(request.run, run.problem().ranks));
  const KernelConfig config = wanted_config(request.run, run);
  const ForwardOptions options = forward_options(request.run, run, config);
  gpus.call(options);
  std::vector<std::unique_ptr<Recording>> recordings;
  for (int r = 0; r < run.problem().ranks; ++r) {
    recordings.push_back(std::make_unique<Recording>(
        gpus.group().layer(r), gpus.device(static_cast<std::size_t>(r)), request.capacity));
  }
  gpus.call(options);
  TracedCall call;
  for (const auto& recording : recordings) recording->append_to(call, !request.run.virtual_ranks);
  const Problem& p = run.problem();
  call.title =
      fmt::format("{} {}rank{}, {} experts, top-k {}, hidden {}, intermediate {}, {}", p.ranks,
                  request.run.virtual_ranks ? "virtual " : "", p.ranks == 1 ? "" : "s", p.experts,
                  p.top_k, p.hidden, p.intermediate, gpus.group().layer(0).check().config);
  return call;
}

}  // namespace megamoe::cli
