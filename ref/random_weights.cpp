#include <cmath>
#include <cstring>
#include <span>

#include "numerics/quantize.hpp"
#include "ref/random_case.hpp"
#include "ref/random_fill.hpp"

namespace megamoe::ref {
namespace {

// What a key is for.
enum WeightKey : std::uint64_t { kW1, kW2, kW1Scales, kW2Scales, kB1, kB2 };

std::span<std::byte> row_of(std::vector<std::byte>& data, std::size_t row, std::size_t row_bytes) {
  return std::span(data).subspan(row * row_bytes, row_bytes);
}

/// One weight matrix of one expert, in a tensor of several.
struct Matrix {
  std::vector<std::byte>* data;
  std::vector<std::byte>* scales;
  std::size_t expert;  ///< in the tensor
  std::size_t rows, cols;
  bool interleaved;  ///< rows lie in the kernel's order
  std::uint64_t key, scale_key;
};

/// The deviation of weights that makes products of unit values have deviation 1.
float weight_deviation(std::size_t cols) { return 1.0F / std::sqrt(static_cast<float>(cols)); }

void fill_row(Precision precision, const Matrix& m, std::size_t row, std::span<std::byte> values) {
  const std::uint64_t key = random_key(m.key, row);
  switch (precision) {
    case Precision::fp8:
      return fill_e4m3(key, values);
    case Precision::bf16:
      return fill_bf16(key, weight_deviation(m.cols), values);
    case Precision::mxfp4:
    case Precision::mxfp8_mxfp4:
      return fill_e2m1(key, values);
  }
}

void fill_block_scales(const Matrix& m) {
  const std::size_t count = m.rows / kScaleGroup * (m.cols / kScaleGroup);
  for (std::size_t i = 0; i < count; ++i) {
    const double spread_of_scales = std::exp2(random_uniform(m.scale_key, i) * 2 - 1);
    const auto scale =
        static_cast<float>(weight_deviation(m.cols) / kE4m3Deviation * spread_of_scales);
    std::memcpy(m.scales->data() + (m.expert * count + i) * sizeof(float), &scale, sizeof(float));
  }
}

void fill_mx_scales(const Matrix& m, std::size_t row, std::span<std::byte> scales) {
  const auto exponent = std::lround(std::log2(weight_deviation(m.cols) / kE2m1Deviation));
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const auto step = static_cast<long>(random_bits(random_key(m.scale_key, row), i) % 3) - 1;
    scales[i] = static_cast<std::byte>(ue8m0_from_exponent(static_cast<int>(exponent + step)));
  }
}

void fill_matrix(Precision precision, const Matrix& m) {
  const std::size_t bits = precision == Precision::bf16 ? 16 : precision == Precision::fp8 ? 8 : 4;
  const std::size_t row_bytes = m.cols * bits / 8;
  for (std::size_t row = 0; row < m.rows; ++row) {
    const auto place = m.interleaved ? static_cast<std::size_t>(interleaved_row(
                                           static_cast<int>(row), static_cast<int>(m.rows / 2)))
                                     : row;
    const std::size_t stored = m.expert * m.rows + place;
    fill_row(precision, m, row, row_of(*m.data, stored, row_bytes));
    if (bits == 4) fill_mx_scales(m, row, row_of(*m.scales, stored, m.cols / kMxScaleGroup));
  }
  if (precision == Precision::fp8) fill_block_scales(m);
}

void fill_biases(OwnedExpertTensors& t, std::size_t expert, std::uint64_t key) {
  const auto rows = 2 * static_cast<std::size_t>(t.shape.intermediate);
  const auto hidden = static_cast<std::size_t>(t.shape.hidden);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto place =
        t.shape.w1_order == W1Order::interleaved_8
            ? static_cast<std::size_t>(interleaved_row(static_cast<int>(row), t.shape.intermediate))
            : row;
    t.b1[expert * rows + place] =
        static_cast<float>(0.25 * random_normal(random_key(key, kB1), row));
  }
  for (std::size_t row = 0; row < hidden; ++row)
    t.b2[expert * hidden + row] =
        static_cast<float>(0.25 * random_normal(random_key(key, kB2), row));
}

/// Fills `num_experts` experts; the first has the number `first_expert` for its seed.
OwnedExpertTensors random_experts(const Problem& p, int num_experts, std::uint64_t first_expert,
                                  std::uint64_t seed, const WeightOptions& options) {
  OwnedExpertTensors t = allocate_tensors(p, num_experts, options);
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const auto intermediate = static_cast<std::size_t>(p.intermediate);
  const bool interleaved = options.w1_order == W1Order::interleaved_8;
  for (std::size_t e = 0; e < static_cast<std::size_t>(num_experts); ++e) {
    const std::uint64_t key = random_key(seed, first_expert + e);
    fill_matrix(p.precision, {&t.w1, &t.w1_scales, e, 2 * intermediate, hidden, interleaved,
                              random_key(key, kW1), random_key(key, kW1Scales)});
    fill_matrix(p.precision, {&t.w2, &t.w2_scales, e, hidden, intermediate, false,
                              random_key(key, kW2), random_key(key, kW2Scales)});
    if (options.biases) fill_biases(t, e, key);
  }
  return t;
}

/// Shared experts have numbers that no routed expert can have.
constexpr std::uint64_t kFirstShared = std::uint64_t{1} << 32;

}  // namespace

ExpertTensors OwnedExpertTensors::view() const {
  ExpertTensors v = shape;
  v.w1 = w1.data();
  v.w1_scales = w1_scales.empty() ? nullptr : w1_scales.data();
  v.w2 = w2.data();
  v.w2_scales = w2_scales.empty() ? nullptr : w2_scales.data();
  v.b1 = b1.empty() ? nullptr : b1.data();
  v.b2 = b2.empty() ? nullptr : b2.data();
  return v;
}

OwnedExpertTensors allocate_tensors(const Problem& p, int num_experts,
                                    const WeightOptions& options) {
  const ExpertBytes bytes = expert_bytes(p.precision, p.hidden, p.intermediate);
  const auto experts = static_cast<std::size_t>(num_experts);
  OwnedExpertTensors t;
  t.shape.precision = p.precision;
  t.shape.w1_order = options.w1_order;
  t.shape.num_experts = num_experts;
  t.shape.hidden = p.hidden;
  t.shape.intermediate = p.intermediate;
  t.w1.resize(experts * bytes.w1);
  t.w1_scales.resize(experts * bytes.w1_scales);
  t.w2.resize(experts * bytes.w2);
  t.w2_scales.resize(experts * bytes.w2_scales);
  if (options.biases) {
    t.b1.resize(experts * 2 * static_cast<std::size_t>(p.intermediate));
    t.b2.resize(experts * static_cast<std::size_t>(p.hidden));
  }
  return t;
}

OwnedExpertTensors random_weights(const Problem& problem, int rank, std::uint64_t seed,
                                  const WeightOptions& options) {
  const int local = problem.experts_per_rank();
  return random_experts(problem, local,
                        static_cast<std::uint64_t>(rank) * static_cast<std::uint64_t>(local), seed,
                        options);
}

OwnedExpertTensors random_shared_weights(const Problem& problem, std::uint64_t seed,
                                         const WeightOptions& options) {
  return random_experts(problem, problem.shared_experts, kFirstShared, seed, options);
}

LayerWeights OwnedLayerWeights::view() const {
  LayerWeights v;
  for (const OwnedExpertTensors& t : routed) v.routed.push_back(t.view());
  if (shared.shape.num_experts > 0) v.shared.assign(routed.size(), shared.view());
  return v;
}

OwnedLayerWeights random_layer(const Problem& problem, std::uint64_t seed,
                               const WeightOptions& options) {
  OwnedLayerWeights layer;
  for (int rank = 0; rank < problem.ranks; ++rank)
    layer.routed.push_back(random_weights(problem, rank, seed, options));
  if (problem.shared_experts > 0) layer.shared = random_shared_weights(problem, seed, options);
  return layer;
}

}  // namespace megamoe::ref
