#pragma once

#include <array>
#include <memory>
#include <vector>

#include "cli/unfused/block_matmul.hpp"
#include "cli/unfused/chain.hpp"
#include "cli/unfused/exchange.hpp"
#include "cli/unfused/plan.hpp"
#include "cli/unfused/weights.hpp"
#include "host/cuda/runtime.hpp"

namespace megamoe::cli::unfused {

/// Streams that fork from a rank's stream and join it again, each with a workspace.
class Lanes {
 public:
  static constexpr std::size_t kCount = 4;

  explicit Lanes(int device);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes();

  /// What comes after on the lanes comes after what is on `main`.
  void fork(cudaStream_t main);
  /// What comes after on `main` comes after what is on the lanes.
  void join(cudaStream_t main);
  [[nodiscard]] cudaStream_t stream(std::size_t lane) const { return streams_[lane]->get(); }
  [[nodiscard]] std::byte* workspace(std::size_t lane) const { return workspaces_[lane].data(); }

 private:
  std::vector<std::unique_ptr<cuda::PrivateStream>> streams_;
  std::vector<cuda::DeviceBuffer> workspaces_;
  std::array<cudaEvent_t, kCount + 1> events_{};  ///< one per lane, the last: of the fork
};

/// One rank's plan with its lists, ids and weights on the GPU.
struct DevicePlan {
  DevicePlan(int device, RankPlan plan, const ref::TokenRouting& routing, const Problem& problem);

  RankPlan plan;
  cuda::DeviceBuffer ids, weights;
  const std::int32_t *sent, *source, *expert_of_row, *expert_begin, *returned, *contribution;

 private:
  cuda::DeviceBuffer lists_;
};

/// One rank of a chain. All members are called with its device current.
class ChainRank {
 public:
  ChainRank(const Problem& problem, ChainRankInput input);

  /// Makes room for these routings, and uploads them.
  void prepare(std::vector<std::unique_ptr<DevicePlan>> plans);

  // The steps of a call, in this order, all on the rank's stream.
  void stage_and_pack(std::size_t routing);
  [[nodiscard]] RankTransfer dispatch(std::size_t routing) const;
  void compute(std::size_t routing, std::size_t weight_set);
  [[nodiscard]] RankTransfer give_back(std::size_t routing) const;
  void sum(std::size_t routing);

  [[nodiscard]] std::uint16_t* y() const;
  [[nodiscard]] const ChainRankInput& input() const { return input_; }

 private:
  /// Whether a product is the first or the second of its expert.
  enum class Part : std::uint8_t { l1, l2 };
  [[nodiscard]] BlockProduct product_of(const RankPlan& plan, std::size_t weight_set, int expert,
                                        Part part) const;
  void multiply(const RankPlan& plan, std::size_t weight_set, Part part);

  Problem problem_;
  ChainRankInput input_;
  std::uint32_t num_sms_ = 0;
  std::vector<std::unique_ptr<LibraryWeights>> weights_;  ///< [weight sets]
  std::unique_ptr<LibraryWeights> shared_;
  BlockMatmul matmul_;
  Lanes lanes_;
  std::vector<std::unique_ptr<DevicePlan>> plans_;  ///< [routings]
  cuda::DeviceBuffer x_, x_scales_, topk_idx_, topk_weights_, words_;
  cuda::DeviceBuffer sent_, received_, expanded_, expanded_scales_;
  cuda::DeviceBuffer gate_up_, h_, h_scales_, out_, returned_, gathered_, y_;
};

}  // namespace megamoe::cli::unfused
