#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "ref/compare.hpp"
#include "tests/multi/process_rank.hpp"

namespace megamoe {
namespace {

class CpuProcessRank final : public ProcessRank {
 public:
  CpuProcessRank(const Problem& problem, std::unique_ptr<SymmetricMemory> memory)
      : ProcessRank(problem, std::move(memory)),
        weights_(ref::random_layer(problem, 7)),
        own_(weights_.routed[static_cast<std::size_t>(layer().rank())].view()) {}

  void stage(const ref::RandomInputs& inputs) override {
    bring(inputs);
    stage_again();
  }
  void start(const ForwardOptions& options) override {
    y_.assign(
        static_cast<std::size_t>(tokens_.num_tokens) * static_cast<std::size_t>(problem_.hidden),
        0xFFFF);
    layer().forward(y_.data(), tokens_.num_tokens, own_, nullptr, options);
  }
  std::vector<std::uint16_t> finish() override {
    layer().check();
    return y_;
  }
  void capture(const ForwardOptions& options) override { captured_ = options; }
  void start_replay() override {
    stage_again();
    start(captured_);
  }
  void bring(const ref::RandomInputs& inputs) override {
    tokens_ = inputs.ranks[static_cast<std::size_t>(layer().rank())];
  }
  [[nodiscard]] std::string wrong(const std::vector<std::uint16_t>& y,
                                  const ref::RandomInputs& inputs) const override {
    std::vector<ref::Row> rows;
    for (int t = 0; t < tokens_.num_tokens; ++t) rows.push_back({group_->layer(0).rank(), t});
    const auto expected = ref::run_rows(inputs.view(), weights_.view(), rows);
    const ref::Difference d = ref::compare(y, expected, problem_.hidden);
    return d.diff < 3e-5 ? "" : fmt::format("diff {}", d.diff);
  }

 private:
  void stage_again() {
    layer().stage(tokens_.hidden_states.data(), std::span<const std::int64_t>(tokens_.topk_idx),
                  tokens_.topk_weights, tokens_.num_tokens);
  }

  ref::OwnedLayerWeights weights_;
  ExpertTensors own_;
  ref::RankTokens tokens_;
  std::vector<std::uint16_t> y_;
  ForwardOptions captured_;
};

}  // namespace

std::unique_ptr<SymmetricMemory> ProcessBackend::memory(const JoinOptions& join) {
  return SymmetricMemory::shared(join);
}

std::unique_ptr<SymmetricMemory> ProcessBackend::pointers(const JoinOptions& join,
                                                          std::unique_ptr<SymmetricMemory>& keep,
                                                          const Problem& problem) {
  keep = SymmetricMemory::shared(join);
  const std::size_t bytes = symmetric_bytes(problem);
  const std::vector<std::byte*> bases = keep->allocate(bytes);
  JoinOptions other = join;
  other.all_gather = [&keep](const std::string& text) { return keep->all_gather(text); };
  return SymmetricMemory::pointers(other, bases, bytes, SymmetricMemory::kHostMemory);
}

std::unique_ptr<ProcessRank> ProcessBackend::rank(const Problem& problem,
                                                  std::unique_ptr<SymmetricMemory> memory) {
  return std::make_unique<CpuProcessRank>(problem, std::move(memory));
}

std::size_t ProcessBackend::used_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::string ProcessBackend::own_scenario(const std::string& name, const JoinOptions& /*join*/) {
  return "no scenario " + name;
}

}  // namespace megamoe
