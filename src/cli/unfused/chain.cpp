#include "cli/unfused/chain.hpp"

#include <utility>

#include <fmt/format.h>

#include "cli/unfused/chain_rank.hpp"
#include "cli/unfused/kernels.hpp"
#include "cli/unfused/nccl.hpp"
#include "cli/unfused/plan.hpp"

namespace megamoe::cli::unfused {
namespace {

std::vector<int> devices_of(const std::vector<ChainRankInput>& inputs) {
  std::vector<int> devices;
  devices.reserve(inputs.size());
  for (const ChainRankInput& input : inputs) devices.push_back(input.device);
  return devices;
}

class Chain : public UnfusedChain {
 public:
  Chain(const Problem& problem, std::vector<ChainRankInput> inputs)
      : problem_(problem), exchange_(make_exchange(devices_of(inputs))) {
    for (ChainRankInput& input : inputs) {
      const cuda::DeviceGuard guard(input.device);
      ranks_.push_back(std::make_unique<ChainRank>(problem, std::move(input)));
    }
  }

  void prepare(std::span<const std::vector<ref::TokenRouting>> routings) override {
    std::vector<std::vector<std::unique_ptr<DevicePlan>>> plans(ranks_.size());
    for (const std::vector<ref::TokenRouting>& routing : routings) {
      std::vector<RankPlan> of_ranks = make_plan(problem_, routing);
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const int device = ranks_[r]->input().device;
        const cuda::DeviceGuard guard(device);
        plans[r].push_back(
            std::make_unique<DevicePlan>(device, std::move(of_ranks[r]), routing[r], problem_));
      }
    }
    on_ranks([&](ChainRank& rank, std::size_t r) { rank.prepare(std::move(plans[r])); });
    for (std::size_t routing = 0; routing < routings.size(); ++routing) run(routing, 0);
    on_ranks([](ChainRank& rank, std::size_t) {
      cuda::check(cudaStreamSynchronize(rank.input().stream), "the first calls of the chain");
    });
  }

  void run(std::size_t routing, std::size_t weight_set) override {
    std::vector<RankTransfer> there, back;
    on_ranks([&](ChainRank& rank, std::size_t) {
      rank.stage_and_pack(routing);
      there.push_back(rank.dispatch(routing));
    });
    exchange_->all_to_all(there);
    on_ranks([&](ChainRank& rank, std::size_t) {
      rank.compute(routing, weight_set);
      back.push_back(rank.give_back(routing));
    });
    exchange_->all_to_all(back);
    on_ranks([&](ChainRank& rank, std::size_t) { rank.sum(routing); });
  }

  [[nodiscard]] std::uint16_t* y(std::size_t rank) const override { return ranks_[rank]->y(); }

  [[nodiscard]] std::string note() const override {
    return fmt::format("{}, {}", cublas_lt_note(), exchange_->note());
  }

 private:
  template <class Action>
  void on_ranks(Action action) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const cuda::DeviceGuard guard(ranks_[r]->input().device);
      action(*ranks_[r], r);
    }
  }

  Problem problem_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<ChainRank>> ranks_;
};

}  // namespace

std::string why_no_chain(std::span<const int> devices) {
  std::string why;
  const auto look_for = [&](const char* what, const auto& load) {
    try {
      load();
    } catch (const Error& error) {
      why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", what, error.what());
    }
  };
  look_for("cuBLASLt", [] { (void)cublas_lt(); });
  if (devices.size() > 1 && devices[0] != devices[1]) look_for("NCCL", [] { (void)nccl(); });
  return why;
}

std::unique_ptr<UnfusedChain> make_chain(const Problem& problem,
                                         std::vector<ChainRankInput> inputs) {
  return std::make_unique<Chain>(problem, std::move(inputs));
}

std::size_t chain_bytes(const Problem& p, int weight_sets) {
  const std::size_t weights = LibraryWeights::bytes(p, p.experts_per_rank()) * size(weight_sets) +
                              LibraryWeights::bytes(p, p.shared_experts);
  // A rank that receives three times its share is more than uniform routing ever gives it.
  const std::size_t tokens = size(p.max_tokens_per_rank);
  const std::size_t rows =
      3 * tokens * size(p.contributions()) + size(p.local_experts()) * (kRowAlignment - 1);
  const std::size_t of_row =
      packed_row_bytes(p.hidden) + 10 * size(p.intermediate) + 2 * size(p.hidden);
  const std::size_t moved =
      2 * tokens * size(p.contributions()) * (packed_row_bytes(p.hidden) + 2 * size(p.hidden));
  return weights + rows * of_row + moved + Lanes::kCount * BlockMatmul::kWorkspaceBytes;
}

}  // namespace megamoe::cli::unfused
