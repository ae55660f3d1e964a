#include <fmt/format.h>

#include "host/devices.hpp"
#include "ref/gpu_bounds.hpp"
#include "tests/device/gpu_memory.hpp"
#include "tests/device/hold_sms.hpp"
#include "tests/multi/process_rank.hpp"

namespace megamoe {
namespace {

using namespace std::chrono_literals;

class CudaProcessRank final : public ProcessRank {
 public:
  CudaProcessRank(const Problem& problem, int device, std::unique_ptr<SymmetricMemory> memory)
      : ProcessRank(problem, std::move(memory)),
        device_(device),
        weights_(ref::random_layer(problem, 7)),
        own_(device, weights_.routed[static_cast<std::size_t>(layer().rank())]),
        hidden_states_(device, values(problem.hidden)),
        ids_(device, values(problem.top_k)),
        topk_weights_(device, values(problem.top_k)),
        y_(device, values(problem.hidden)),
        stream_(device) {}
  CudaProcessRank(const CudaProcessRank&) = delete;
  CudaProcessRank& operator=(const CudaProcessRank&) = delete;
  ~CudaProcessRank() override {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    group_.reset();  // waits for its calls before the buffers go
  }

  void stage(const ref::RandomInputs& inputs) override {
    bring(inputs);
    start_stage();
  }
  void start(const ForwardOptions& options) override {
    cuda::check(cudaMemsetAsync(y_.data(), 0xFF, values(problem_.hidden) * 2, stream_.get()), "y");
    start_call(options);
  }
  std::vector<std::uint16_t> finish() override {
    cuda::check(cudaStreamSynchronize(stream_.get()), "waiting for a call");
    layer().check();
    return y_.download(static_cast<std::size_t>(num_tokens_) *
                       static_cast<std::size_t>(problem_.hidden));
  }
  void capture(const ForwardOptions& options) override {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    cudaGraph_t graph = nullptr;
    cuda::check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "begin");
    start_stage();
    start_call(options);
    cuda::check(cudaStreamEndCapture(stream_.get(), &graph), "end");
    cuda::check(cudaGraphInstantiate(&graph_, graph, 0), "graph");
    cudaGraphDestroy(graph);
  }
  void start_replay() override {
    cuda::check(cudaMemsetAsync(y_.data(), 0xFF, values(problem_.hidden) * 2, stream_.get()), "y");
    cuda::check(cudaGraphLaunch(graph_, stream_.get()), "launch");
  }
  void bring(const ref::RandomInputs& inputs) override {
    const ref::RankTokens& tokens = inputs.ranks[static_cast<std::size_t>(layer().rank())];
    cuda::check(cudaStreamSynchronize(stream_.get()), "before an upload");
    hidden_states_.upload(tokens.hidden_states);
    ids_.upload(tokens.topk_idx);
    topk_weights_.upload(tokens.topk_weights);
    num_tokens_ = tokens.num_tokens;
  }
  [[nodiscard]] std::string wrong(const std::vector<std::uint16_t>& y,
                                  const ref::RandomInputs& inputs) const override {
    std::vector<ref::Row> rows;
    for (int t = 0; t < num_tokens_; ++t) rows.push_back({group_->layer(0).rank(), t});
    if (rows.empty()) return {};
    const ref::GpuCheck check = ref::check_gpu(y, inputs.view(), weights_.view(), rows, 4);
    return check.ok() ? "" : ref::text(check);
  }

 private:
  [[nodiscard]] std::size_t values(int per_token) const {
    return static_cast<std::size_t>(problem_.max_tokens_per_rank) *
           static_cast<std::size_t>(per_token);
  }
  void start_stage() {
    const auto slots =
        static_cast<std::size_t>(num_tokens_) * static_cast<std::size_t>(problem_.top_k);
    layer().stage(hidden_states_.data(), std::span<const std::int64_t>(ids_.data(), slots),
                  std::span<const float>(topk_weights_.data(), slots), num_tokens_, 1.0F,
                  stream_.get());
  }
  void start_call(const ForwardOptions& options) {
    layer().forward(y_.data(), num_tokens_, own_.view(), nullptr, options, stream_.get());
  }

  int device_;
  ref::OwnedLayerWeights weights_;
  GpuExperts own_;
  GpuArray<std::uint16_t> hidden_states_;
  GpuArray<std::int64_t> ids_;
  GpuArray<float> topk_weights_;
  GpuArray<std::uint16_t> y_;
  GpuStream stream_;
  int num_tokens_ = 0;
  cudaGraphExec_t graph_ = nullptr;
};

int device_of(const JoinOptions& join) {
  return find_devices().usable.at(static_cast<std::size_t>(join.rank));
}

/// The call ends while another kernel holds all SMs but a few.
std::string side_stream_holds_sms(const JoinOptions& join) {
  const Problem p = {.ranks = 2,
                     .experts = 16,
                     .top_k = 4,
                     .hidden = 256,
                     .intermediate = 128,
                     .max_tokens_per_rank = 200};
  const auto rank = ProcessBackend::rank(p, ProcessBackend::memory(join));
  const auto inputs =
      ref::random_inputs(p, std::vector<int>(2, 60), {ref::RoutingKind::uniform}, 3);
  rank->stage(inputs);
  rank->run();
  const int device = device_of(join);
  const int sms = sms_of(device);
  for (const int held : {1, sms / 2, sms - 1}) {
    SmHolder holder(device, held, 20s);
    ForwardOptions options;
    options.deadline = 5s;
    const auto y = rank->run(options);
    if (!holder.holds()) return fmt::format("{} SMs were not held until the call had ended", held);
    if (const std::string text = rank->wrong(y, inputs); !text.empty()) return text;
  }
  return "right";
}

std::string one_gpu_for_both(const JoinOptions& join) {
  SymmetricMemory::cuda_processes(join, 0);
  return "accepted";
}

}  // namespace

std::unique_ptr<SymmetricMemory> ProcessBackend::memory(const JoinOptions& join) {
  cuda::check(cudaSetDevice(device_of(join)), "cudaSetDevice");
  return SymmetricMemory::cuda_processes(join);
}

std::unique_ptr<SymmetricMemory> ProcessBackend::pointers(const JoinOptions& join,
                                                          std::unique_ptr<SymmetricMemory>& keep,
                                                          const Problem& problem) {
  keep = memory(join);
  const std::size_t bytes = symmetric_bytes(problem);
  const std::vector<std::byte*> bases = keep->allocate(bytes);
  JoinOptions other = join;
  other.all_gather = [&keep](const std::string& text) { return keep->all_gather(text); };
  return SymmetricMemory::pointers(other, bases, bytes);
}

std::unique_ptr<ProcessRank> ProcessBackend::rank(const Problem& problem,
                                                  std::unique_ptr<SymmetricMemory> memory) {
  const int device = memory->devices().front();
  return std::make_unique<CudaProcessRank>(problem, device, std::move(memory));
}

std::size_t ProcessBackend::used_bytes() {
  std::size_t free_bytes = 0, all_bytes = 0;
  cuda::check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  return all_bytes - free_bytes;
}

std::string ProcessBackend::own_scenario(const std::string& name, const JoinOptions& join) {
  if (name == "held") return side_stream_holds_sms(join);
  if (name == "one gpu") return one_gpu_for_both(join);
  return "no scenario " + name;
}

}  // namespace megamoe
