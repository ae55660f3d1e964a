#include "tests/ladder/intermediates.hpp"

#include "numerics/activation.hpp"
#include "numerics/e4m3.hpp"
#include "ref/decode.hpp"

namespace megamoe::ladder {
namespace {

constexpr std::size_t kMostRows = 400;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

const ref::OwnedExpertTensors& tensors_of(const GpuCase& layer, int rank) {
  return layer.weights().routed[at(rank)];
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
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

std::vector<double> ActRing::values(const PlannedRow& row) const {
  std::vector<double> out(at(intermediate_));
  for (int i = 0; i < intermediate_; ++i) {
    out[at(i)] = static_cast<double>(kE4m3Values[codes(row)[i]]) *
                 static_cast<double>(scale(row, i / kGranule));
  }
  return out;
}

std::vector<float> expected_h(const GpuCase& layer, const ref::RandomInputs& inputs, int rank,
                              const PlannedRow& row) {
  const Problem& p = layer.problem();
  const ExpertTensors tensors = tensors_of(layer, rank).view();
  std::vector<double> x(at(p.hidden)), w(at(p.hidden));
  const ref::RankInput from = inputs.ranks[at(row.src)].view();
  ref::decode_x(p, from, row.token, x.data());
  std::vector<float> h;
  for (int channel = 0; channel < p.intermediate; ++channel) {
    ref::decode_w1(tensors, row.expert, channel, w.data());
    const double gate = dot(x, w);
    ref::decode_w1(tensors, row.expert, p.intermediate + channel, w.data());
    const double up = dot(x, w);
    h.push_back(static_cast<float>(activate<StandardMath<double>>(p.activation, gate, up)));
  }
  return h;
}

std::vector<double> expected_o(const GpuCase& layer, int rank, const PlannedRow& row,
                               const std::vector<double>& h) {
  const Problem& p = layer.problem();
  const ExpertTensors tensors = tensors_of(layer, rank).view();
  std::vector<double> w(at(p.intermediate)), o;
  for (int channel = 0; channel < p.hidden; ++channel) {
    ref::decode_w2(tensors, row.expert, channel, w.data());
    o.push_back(dot(h, w));
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
