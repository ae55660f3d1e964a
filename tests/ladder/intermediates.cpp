#include "tests/ladder/intermediates.hpp"

#include "numerics/activation.hpp"
#include "numerics/bf16.hpp"
#include "ref/decode.hpp"
#include "ref/tensor_core.hpp"

namespace megamoe::ladder {
namespace {

constexpr std::size_t kMostRows = 400;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

const ref::OwnedExpertTensors& tensors_of(const GpuCase& layer, int rank) {
  return layer.weights().routed[at(rank)];
}

void set_row(ref::TensorCoreRows& rows, std::size_t row, const ref::ScaledCodes& from) {
  rows.set(row, from.codes, from.scales);
}

std::byte* combine_of(LayerState& s) {
  return s.memory.peer(static_cast<protocol::u32>(s.rank)) + s.memory.symmetric().combine;
}

std::size_t combine_values(const Problem& p) {
  return at(p.contributions()) * at(p.max_tokens_per_rank) * at(p.hidden);
}

}  // namespace

ActRing::ActRing(GpuCase& layer, int rank, const KernelConfig& config)
    : block_rows_(config.block_rows),
      slots_(ring_slots(layer.problem(), config).act),
      intermediate_(layer.problem().intermediate),
      codes_(at(slots_) * at(block_rows_) * at(intermediate_)),
      scales_(codes_.size() / kGranule) {
  LayerState& s = layer.state(rank);
  s.space->read(codes_.data(), s.memory.act(), codes_.size());
  s.space->read(scales_.data(), s.memory.act_scales(), scales_.size() * sizeof(float));
}

bool ActRing::holds(const std::vector<PlannedRow>& rows) const {
  return rows.empty() || rows.back().block < slots_;
}

const std::uint8_t* ActRing::codes(const PlannedRow& row) const {
  return codes_.data() + (at(row.block) * at(block_rows_) + at(row.row)) * at(intermediate_);
}

float ActRing::scale(const PlannedRow& row, int granule) const {
  const std::size_t granules = at(intermediate_ / kGranule);
  return scales_[(at(row.block) * granules + at(granule)) * at(block_rows_) + at(row.row)];
}

std::vector<float> expected_h(const GpuCase& layer, const ref::RandomInputs& inputs, int rank,
                              const PlannedRow& row) {
  const Problem& p = layer.problem();
  const ExpertTensors tensors = tensors_of(layer, rank).view();
  ref::TensorCoreRows x(1, at(p.hidden)), w(2, at(p.hidden));
  set_row(x, 0, ref::x_codes(p, inputs.ranks[at(row.src)].view(), row.token));
  std::vector<float> h;
  for (int channel = 0; channel < p.intermediate; ++channel) {
    set_row(w, 0, ref::w1_codes(tensors, row.expert, channel));
    set_row(w, 1, ref::w1_codes(tensors, row.expert, p.intermediate + channel));
    h.push_back(activate<StandardMath<float>>(p.activation, ref::tensor_core_dot(x, 0, w, 0),
                                              ref::tensor_core_dot(x, 0, w, 1)));
  }
  return h;
}

std::vector<std::uint16_t> expected_o(const GpuCase& layer, int rank, const PlannedRow& row,
                                      const ActRing& ring) {
  const Problem& p = layer.problem();
  const ExpertTensors tensors = tensors_of(layer, rank).view();
  ref::TensorCoreRows h(1, at(p.intermediate)), w(1, at(p.intermediate));
  std::vector<float> scales;
  for (int granule = 0; granule < p.intermediate / kGranule; ++granule)
    scales.push_back(ring.scale(row, granule));
  h.set(0, reinterpret_cast<const std::byte*>(ring.codes(row)),
        std::as_bytes(std::span(scales)).data());
  std::vector<std::uint16_t> o;
  for (int channel = 0; channel < p.hidden; ++channel) {
    set_row(w, 0, ref::w2_codes(tensors, row.expert, channel));
    o.push_back(float_to_bf16(ref::tensor_core_dot(h, 0, w, 0)));
  }
  return o;
}

std::vector<std::uint16_t> combine_slots(GpuCase& layer, int rank) {
  LayerState& s = layer.state(rank);
  std::vector<std::uint16_t> all(combine_values(layer.problem()));
  s.space->read(all.data(), combine_of(s), all.size() * sizeof(std::uint16_t));
  return all;
}

void poison_combine_slots(GpuCase& layer) {
  for (int r = 0; r < layer.problem().ranks; ++r) {
    const cuda::DeviceGuard guard(layer.device(r));
    const cuda::PrivateStream stream;
    cuda::check(cudaMemsetAsync(combine_of(layer.state(r)), 0xFF,
                                combine_values(layer.problem()) * 2, stream.get()),
                "poisoning the combine slots");
    cuda::check(cudaStreamSynchronize(stream.get()), "poisoning the combine slots");
  }
}

std::size_t combine_index(const Problem& p, int token, int slot) {
  return (at(slot) * at(p.max_tokens_per_rank) + at(token)) * at(p.hidden);
}

std::size_t row_step(std::size_t rows) { return 1 + rows / kMostRows; }

}  // namespace megamoe::ladder
