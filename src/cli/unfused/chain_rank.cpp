#include "cli/unfused/chain_rank.hpp"

#include <algorithm>
#include <utility>

#include "cli/unfused/kernels.hpp"
#include "kernels/stage.hpp"

namespace megamoe::cli::unfused {
namespace {

using cuda::DeviceBuffer;

float* floats(const DeviceBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }
std::uint16_t* bf16s(const DeviceBuffer& buffer) {
  return reinterpret_cast<std::uint16_t*>(buffer.data());
}

/// A copy on a device.
template <class Value>
DeviceBuffer uploaded(int device, const std::vector<Value>& values) {
  DeviceBuffer buffer(device, values.size() * sizeof(Value));
  const cuda::PrivateStream stream;
  cuda::check(cudaMemcpyAsync(buffer.data(), values.data(), values.size() * sizeof(Value),
                              cudaMemcpyHostToDevice, stream.get()),
              "uploading a plan");
  cuda::check(cudaStreamSynchronize(stream.get()), "uploading a plan");
  return buffer;
}

std::vector<std::size_t> bytes_of(const std::vector<int>& rows, std::size_t row_bytes) {
  std::vector<std::size_t> bytes;
  bytes.reserve(rows.size());
  for (const int count : rows) bytes.push_back(size(count) * row_bytes);
  return bytes;
}

}  // namespace

Lanes::Lanes(int device) {
  for (std::size_t i = 0; i < kCount; ++i) {
    streams_.push_back(std::make_unique<cuda::PrivateStream>());
    workspaces_.emplace_back(device, BlockMatmul::kWorkspaceBytes);
  }
  for (cudaEvent_t& event : events_)
    cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
}

Lanes::~Lanes() {
  for (cudaEvent_t event : events_)
    if (event != nullptr) cudaEventDestroy(event);
}

void Lanes::fork(cudaStream_t main) {
  cuda::check(cudaEventRecord(events_[kCount], main), "forking");
  for (const auto& lane : streams_)
    cuda::check(cudaStreamWaitEvent(lane->get(), events_[kCount], 0), "forking");
}

void Lanes::join(cudaStream_t main) {
  for (std::size_t i = 0; i < kCount; ++i) {
    cuda::check(cudaEventRecord(events_[i], stream(i)), "joining");
    cuda::check(cudaStreamWaitEvent(main, events_[i], 0), "joining");
  }
}

DevicePlan::DevicePlan(int device, RankPlan host_plan, const ref::TokenRouting& routing,
                       const Problem& problem)
    : plan(std::move(host_plan)),
      ids(uploaded(device, routing.topk_idx)),
      weights(uploaded(device, routing.topk_weights)) {
  const std::vector<std::int32_t> begins(plan.expert_begin.begin(), plan.expert_begin.end());
  const std::array<const std::vector<std::int32_t>*, 6> all = {
      &plan.sent, &plan.source, &plan.expert_of_row, &begins, &plan.returned, &plan.contribution};
  std::vector<std::int32_t> joined;
  std::array<std::size_t, 6> first{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    first[i] = joined.size();
    joined.insert(joined.end(), all[i]->begin(), all[i]->end());
  }
  lists_ = uploaded(device, joined);
  const auto* base = reinterpret_cast<const std::int32_t*>(lists_.data());
  sent = base + first[0];
  source = base + first[1];
  expert_of_row = base + first[2];
  expert_begin = base + first[3];
  returned = base + first[4];
  contribution = base + first[5];
  if (plan.expert_rows.size() != size(problem.local_experts())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a plan of {} experts for a rank that has {}", plan.expert_rows.size(),
                            problem.local_experts()));
  }
}

ChainRank::ChainRank(const Problem& problem, ChainRankInput input)
    : problem_(problem), input_(std::move(input)), lanes_(input_.device) {
  int sms = 0;
  cuda::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, input_.device),
              "the number of SMs");
  num_sms_ = static_cast<std::uint32_t>(sms);
  for (const ExpertTensors& set : input_.weight_sets)
    weights_.push_back(std::make_unique<LibraryWeights>(input_.device, set));
  if (input_.shared != nullptr)
    shared_ = std::make_unique<LibraryWeights>(input_.device, *input_.shared);
}

void ChainRank::prepare(std::vector<std::unique_ptr<DevicePlan>> plans) {
  plans_ = std::move(plans);
  std::size_t tokens = 0, sent = 0, received = 0, rows = 0, returned = 0, gathered = 0;
  for (const auto& p : plans_) {
    tokens = std::max(tokens, size(p->plan.num_tokens));
    sent = std::max(sent, p->plan.sent.size());
    received = std::max(received, size(total_rows(p->plan.received_rows)));
    rows = std::max(rows, size(p->plan.padded_rows()));
    returned = std::max(returned, p->plan.returned.size());
    gathered = std::max(gathered, size(total_rows(p->plan.gathered_rows)));
  }
  const std::size_t hidden = size(problem_.hidden), intermediate = size(problem_.intermediate);
  const std::size_t row_bytes = packed_row_bytes(problem_.hidden), slots = size(problem_.top_k);
  // The memory of the sizes before is given back before more is asked for.
  const auto allot = [&](DeviceBuffer& buffer, std::size_t bytes) {
    buffer = DeviceBuffer();
    buffer = DeviceBuffer(input_.device, bytes);
  };
  allot(x_, tokens * hidden);
  allot(x_scales_, tokens * hidden / 128 * sizeof(float));
  allot(topk_idx_, tokens * slots * sizeof(std::int64_t));
  allot(topk_weights_, tokens * slots * sizeof(float));
  allot(words_, sizeof(StageWords));
  allot(sent_, sent * row_bytes);
  allot(received_, received * row_bytes);
  allot(expanded_, rows * hidden);
  allot(expanded_scales_, rows * hidden / 128 * sizeof(float));
  allot(gate_up_, rows * 2 * intermediate * sizeof(float));
  allot(h_, rows * intermediate);
  allot(h_scales_, rows * intermediate / 128 * sizeof(float));
  allot(out_, rows * hidden * 2);
  allot(returned_, returned * hidden * 2);
  allot(gathered_, gathered * hidden * 2);
  allot(y_, tokens * hidden * 2);
}

void ChainRank::stage_and_pack(std::size_t routing) {
  const DevicePlan& device = *plans_[routing];
  const auto tokens = static_cast<std::uint32_t>(device.plan.num_tokens);
  const StageParams stage = {.hidden_states = input_.hidden_states,
                             .ids = device.ids.data(),
                             .weights = floats(device.weights),
                             .x = x_.data(),
                             .x_scales = floats(x_scales_),
                             .topk_idx = reinterpret_cast<std::int64_t*>(topk_idx_.data()),
                             .topk_weights = floats(topk_weights_),
                             .words = reinterpret_cast<StageWords*>(words_.data()),
                             .num_tokens = tokens,
                             .hidden_granules = static_cast<std::uint32_t>(problem_.hidden) / 128,
                             .top_k = static_cast<std::uint32_t>(problem_.top_k),
                             .wide_ids = true,
                             .routed_scaling = 1.0F};
  cuda::check(launch_stage(stage, tokens, num_sms_, input_.stream), "staging");
  cuda::check(launch_pack({.x = x_.data(),
                           .x_scales = floats(x_scales_),
                           .token = device.sent,
                           .packed = sent_.data(),
                           .rows = static_cast<int>(device.plan.sent.size()),
                           .hidden = problem_.hidden},
                          input_.stream),
              "packing rows");
}

RankTransfer ChainRank::dispatch(std::size_t routing) const {
  const RankPlan& plan = plans_[routing]->plan;
  const std::size_t row_bytes = packed_row_bytes(problem_.hidden);
  return {.from = sent_.data(),
          .bytes_to = bytes_of(plan.sent_rows, row_bytes),
          .to = received_.data(),
          .bytes_from = bytes_of(plan.received_rows, row_bytes),
          .stream = input_.stream};
}

BlockProduct ChainRank::product_of(const RankPlan& plan, std::size_t weight_set, int expert,
                                   Part part) const {
  const bool shared = expert >= problem_.experts_per_rank();
  const LibraryWeights& weights = shared ? *shared_ : *weights_[weight_set];
  const int of_weights = shared ? expert - problem_.experts_per_rank() : expert;
  const std::size_t begin = size(plan.expert_begin[size(expert)]);
  const std::size_t hidden = size(problem_.hidden), intermediate = size(problem_.intermediate);
  BlockProduct p;
  p.rows = plan.padded_rows_of(expert);
  if (part == Part::l1) {
    p.x = expanded_.data() + begin * hidden;
    p.x_scales = floats(expanded_scales_) + begin * hidden / 128;
    p.w = weights.w1(of_weights);
    p.w_scales = weights.w1_scales(of_weights);
    p.d = floats(gate_up_) + begin * 2 * intermediate;
    p.cols = 2 * problem_.intermediate;
    p.depth = problem_.hidden;
  } else {
    p.x = h_.data() + begin * intermediate;
    p.x_scales = floats(h_scales_) + begin * intermediate / 128;
    p.w = weights.w2(of_weights);
    p.w_scales = weights.w2_scales(of_weights);
    p.d = bf16s(out_) + begin * hidden;
    p.cols = problem_.hidden;
    p.depth = problem_.intermediate;
    p.bf16 = true;
  }
  return p;
}

void ChainRank::multiply(const RankPlan& plan, std::size_t weight_set, Part part) {
  lanes_.fork(input_.stream);
  std::size_t lane = 0;
  for (int expert = 0; expert < problem_.local_experts(); ++expert) {
    if (plan.padded_rows_of(expert) == 0) continue;
    matmul_.run(product_of(plan, weight_set, expert, part), lanes_.workspace(lane),
                lanes_.stream(lane));
    lane = (lane + 1) % Lanes::kCount;
  }
  lanes_.join(input_.stream);
}

void ChainRank::compute(std::size_t routing, std::size_t weight_set) {
  const DevicePlan& device = *plans_[routing];
  const int rows = device.plan.padded_rows();
  cuda::check(launch_expand({.x = x_.data(),
                             .x_scales = floats(x_scales_),
                             .received = received_.data(),
                             .source = device.source,
                             .expert = device.expert_of_row,
                             .expert_begin = device.expert_begin,
                             .out = expanded_.data(),
                             .out_scales = floats(expanded_scales_),
                             .num_tokens = device.plan.num_tokens,
                             .rows = rows,
                             .hidden = problem_.hidden},
                            input_.stream),
              "ordering rows by expert");
  multiply(device.plan, weight_set, Part::l1);
  cuda::check(launch_activate({.gate_up = floats(gate_up_),
                               .expert = device.expert_of_row,
                               .expert_begin = device.expert_begin,
                               .h = h_.data(),
                               .h_scales = floats(h_scales_),
                               .activation = problem_.activation,
                               .rows = rows,
                               .intermediate = problem_.intermediate},
                              input_.stream),
              "the activation");
  multiply(device.plan, weight_set, Part::l2);
  cuda::check(launch_gather({.rows_of = bf16s(out_),
                             .row = device.returned,
                             .out = bf16s(returned_),
                             .rows = static_cast<int>(device.plan.returned.size()),
                             .hidden = problem_.hidden},
                            input_.stream),
              "gathering rows");
}

RankTransfer ChainRank::give_back(std::size_t routing) const {
  const RankPlan& plan = plans_[routing]->plan;
  const std::size_t row_bytes = size(problem_.hidden) * 2;
  return {.from = returned_.data(),
          .bytes_to = bytes_of(plan.returned_rows, row_bytes),
          .to = gathered_.data(),
          .bytes_from = bytes_of(plan.gathered_rows, row_bytes),
          .stream = input_.stream};
}

void ChainRank::sum(std::size_t routing) {
  const DevicePlan& device = *plans_[routing];
  cuda::check(launch_sum({.own = bf16s(out_),
                          .gathered = bf16s(gathered_),
                          .contribution = device.contribution,
                          .weights = floats(topk_weights_),
                          .y = bf16s(y_),
                          .own_rows = device.plan.padded_rows(),
                          .num_tokens = device.plan.num_tokens,
                          .hidden = problem_.hidden,
                          .top_k = problem_.top_k,
                          .shared = problem_.shared_experts},
                         input_.stream),
              "the sum");
}

std::uint16_t* ChainRank::y() const { return bf16s(y_); }

}  // namespace megamoe::cli::unfused
