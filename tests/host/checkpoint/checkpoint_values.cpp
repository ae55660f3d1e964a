// checkpoint_values PATH LAYER OUT RANKS [PRECISION]: loads a layer for every rank and writes what
// the experts mean, as float, padding included: w1 [E, 2I, H] (gate rows, then up rows), w2
// [E, H, I], b1, b2, shared_w1, shared_w2. For the comparison with the Python decoder.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "host/checkpoint/safetensors.hpp"
#include "megamoe/checkpoint.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe {
namespace {

float float_at(const std::byte* address) {
  float value = 0;
  std::memcpy(&value, address, sizeof value);
  return value;
}

/// Element (row, col) of one expert's matrix. `row` is its place in memory, `logical_row` its place
/// among gate and up rows, which counts for block scales.
float element(Precision precision, const std::byte* codes, const std::byte* scales, int row,
              int logical_row, int col, int cols) {
  const auto index = static_cast<std::size_t>(row) * static_cast<std::size_t>(cols) +
                     static_cast<std::size_t>(col);
  switch (precision) {
    case Precision::bf16: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, codes + 2 * index, sizeof bits);
      return bf16_to_float(bits);
    }
    case Precision::fp8: {
      const auto block = static_cast<std::size_t>(logical_row / 128 * (cols / 128) + col / 128);
      return e4m3_to_float(std::to_integer<std::uint8_t>(codes[index])) *
             float_at(scales + block * sizeof(float));
    }
    case Precision::mxfp4:
    case Precision::mxfp8_mxfp4:
      break;
  }
  const auto byte = std::to_integer<unsigned>(codes[index / 2]);
  const auto nibble = static_cast<std::uint8_t>(col % 2 == 0 ? byte & 15U : byte >> 4);
  return e2m1_to_float(nibble) * ue8m0_to_float(std::to_integer<std::uint8_t>(scales[index / 32]));
}

struct Values {
  std::vector<float> w1, w2, b1, b2;
  std::int64_t num_experts = 0, hidden = 0, intermediate = 0;
};

void append(const OwnedExperts& owned, Values& all) {
  const ExpertTensors t = owned.view();
  const ExpertBytes one = expert_bytes(t.precision, t.hidden, t.intermediate);
  all.num_experts += t.num_experts;
  all.hidden = t.hidden;
  all.intermediate = t.intermediate;
  for (std::size_t e = 0; e < static_cast<std::size_t>(t.num_experts); ++e) {
    for (int r = 0; r < 2 * t.intermediate; ++r) {
      const int row = interleaved_row(r, t.intermediate);
      for (int c = 0; c < t.hidden; ++c)
        all.w1.push_back(element(t.precision, t.w1 + e * one.w1, t.w1_scales + e * one.w1_scales,
                                 row, r, c, t.hidden));
      if (t.b1 != nullptr)
        all.b1.push_back(t.b1[e * 2 * static_cast<std::size_t>(t.intermediate) + row]);
    }
    for (int r = 0; r < t.hidden; ++r) {
      for (int c = 0; c < t.intermediate; ++c)
        all.w2.push_back(element(t.precision, t.w2 + e * one.w2, t.w2_scales + e * one.w2_scales, r,
                                 r, c, t.intermediate));
      if (t.b2 != nullptr) all.b2.push_back(t.b2[e * static_cast<std::size_t>(t.hidden) + r]);
    }
  }
}

void add_tensors(const Values& v, const std::string& prefix, std::vector<TensorToWrite>& out) {
  const auto bytes = [](const std::vector<float>& values) {
    return std::as_bytes(std::span<const float>(values));
  };
  out.push_back(
      {prefix + "w1", DType::f32, {v.num_experts, 2 * v.intermediate, v.hidden}, bytes(v.w1)});
  out.push_back(
      {prefix + "w2", DType::f32, {v.num_experts, v.hidden, v.intermediate}, bytes(v.w2)});
  if (v.b1.empty()) return;
  out.push_back({prefix + "b1", DType::f32, {v.num_experts, 2 * v.intermediate}, bytes(v.b1)});
  out.push_back({prefix + "b2", DType::f32, {v.num_experts, v.hidden}, bytes(v.b2)});
}

int run(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: checkpoint_values PATH LAYER OUT RANKS [fp8|bf16|mxfp4]\n", stderr);
    return 2;
  }
  LoadOptions options{.ranks = std::atoi(argv[4])};
  for (const Precision p : {Precision::fp8, Precision::bf16, Precision::mxfp4}) {
    if (argc > 5 && std::string(argv[5]) == name(p)) options.precision = p;
  }
  const std::vector<LoadedLayer> ranks = load_layer_all_ranks(argv[1], std::atoi(argv[2]), options);
  Values routed;
  Values shared;
  int next = 0;
  for (const LoadedLayer& rank : ranks) {
    if (rank.first_expert != next) throw std::runtime_error("ranks' experts are not in order");
    next += rank.routed.num_experts;
    append(rank.routed, routed);
  }
  std::vector<TensorToWrite> out;
  add_tensors(routed, "", out);
  if (ranks.front().shared) {
    append(*ranks.front().shared, shared);
    add_tensors(shared, "shared_", out);
  }
  write_safetensors(argv[3], out, {{"precision", name(ranks.front().routed.precision)}});
  fmt::print("{} {}\n", ranks.front().family, name(ranks.front().routed.precision));
  return 0;
}

}  // namespace
}  // namespace megamoe

int main(int argc, char** argv) {
  try {
    return megamoe::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
