// A layer whose sizes are padded must give exactly what it gives without padding. The evaluation
// here knows nothing of padding: it runs on the padded matrices and on the model's own part of
// them, with the roundings of the fp8 path, and the results are compared bit for bit.

#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "megamoe/checkpoint.hpp"
#include "model_folder.hpp"
#include "numerics/activation.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/quantize.hpp"

namespace megamoe {
namespace {

/// One expert with biases, MXFP4 weights as values.
struct Expert {
  int hidden = 0, intermediate = 0;
  std::vector<double> gate = {}, up = {}, down = {};  // [I, H], [I, H], [H, I]
  std::vector<double> gate_bias = {}, up_bias = {}, down_bias = {};
};

double mxfp4_at(const std::vector<std::byte>& codes, const std::vector<std::byte>& scales, int row,
                int col, int cols) {
  const auto index = static_cast<std::size_t>(row) * static_cast<std::size_t>(cols) +
                     static_cast<std::size_t>(col);
  const auto byte = std::to_integer<unsigned>(codes[index / 2]);
  return e2m1_to_float(static_cast<std::uint8_t>(col % 2 == 0 ? byte & 15U : byte >> 4)) *
         ue8m0_to_float(std::to_integer<std::uint8_t>(scales[index / 32]));
}

/// The first `hidden` and `intermediate` channels of the first expert.
Expert part(const OwnedExperts& all, int hidden, int intermediate) {
  Expert e{.hidden = hidden, .intermediate = intermediate};
  for (int i = 0; i < intermediate; ++i) {
    const int gate_row = interleaved_row(i, all.intermediate);
    const int up_row = interleaved_row(all.intermediate + i, all.intermediate);
    for (int h = 0; h < hidden; ++h) {
      e.gate.push_back(mxfp4_at(all.w1, all.w1_scales, gate_row, h, all.hidden));
      e.up.push_back(mxfp4_at(all.w1, all.w1_scales, up_row, h, all.hidden));
    }
    e.gate_bias.push_back(all.b1[static_cast<std::size_t>(gate_row)]);
    e.up_bias.push_back(all.b1[static_cast<std::size_t>(up_row)]);
  }
  for (int h = 0; h < hidden; ++h) {
    for (int i = 0; i < intermediate; ++i)
      e.down.push_back(mxfp4_at(all.w2, all.w2_scales, h, i, all.intermediate));
    e.down_bias.push_back(all.b2[static_cast<std::size_t>(h)]);
  }
  return e;
}

/// Quantises in groups of 128, the last of which may be shorter, and gives the values back.
std::vector<double> quantised(const std::vector<float>& values) {
  std::vector<double> out;
  for (std::size_t first = 0; first < values.size(); first += 128) {
    const int count = static_cast<int>(std::min<std::size_t>(128, values.size() - first));
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(count));
    const float scale = quantize_group(values.data() + first, count, codes.data());
    for (const std::uint8_t code : codes) out.push_back(double{e4m3_to_float(code)} * scale);
  }
  return out;
}

std::vector<std::uint16_t> evaluate(const Expert& e, const Activation& activation,
                                    const std::vector<float>& x) {
  const std::vector<double> xq = quantised(x);
  const auto dot = [](const std::vector<double>& matrix, std::size_t row,
                      const std::vector<double>& v, double bias) {
    double sum = bias;
    for (std::size_t k = 0; k < v.size(); ++k) sum += matrix[row * v.size() + k] * v[k];
    return sum;
  };
  std::vector<float> h;
  for (std::size_t i = 0; i < static_cast<std::size_t>(e.intermediate); ++i) {
    const double gate = dot(e.gate, i, xq, e.gate_bias[i]);
    const double up = dot(e.up, i, xq, e.up_bias[i]);
    h.push_back(static_cast<float>(activate<StandardMath<double>>(activation, gate, up)));
  }
  const std::vector<double> hq = quantised(h);
  std::vector<std::uint16_t> y;
  for (std::size_t c = 0; c < static_cast<std::size_t>(e.hidden); ++c)
    y.push_back(float_to_bf16(static_cast<float>(dot(e.down, c, hq, e.down_bias[c]))));
  return y;
}

TEST(Padding, ChangesNoBitOfTheResult) {
  constexpr int kHidden = 160;
  constexpr int kIntermediate = 224;
  ModelFolder model = gpt_oss(kHidden, kIntermediate, 1);
  const LoadedLayer layer = load_layer(model.write(), 0);
  ASSERT_EQ(layer.routed.hidden, 256);
  ASSERT_EQ(layer.routed.intermediate, 256);
  const Expert own = part(layer.routed, kHidden, kIntermediate);
  const Expert padded = part(layer.routed, 256, 256);
  std::vector<Activation> activations{layer.activation, Activation{}, Activation{.clamp = 10.0F}};
  activations.push_back({.kind = ActivationKind::situ, .beta = 4.0F, .linear_beta = 25.0F});
  for (const Activation& activation : activations) {
    for (std::uint32_t token = 1; token <= 4; ++token) {
      std::vector<float> x;
      std::uint32_t state = token;
      for (int c = 0; c < kHidden; ++c) {
        state = state * 1664525U + 1013904223U;
        x.push_back((static_cast<float>(state >> 16) / 32768.0F - 1.0F) *
                    static_cast<float>(token));
      }
      const std::vector<std::uint16_t> want = evaluate(own, activation, x);
      x.resize(256, 0.0F);
      std::vector<std::uint16_t> found = evaluate(padded, activation, x);
      for (int c = kHidden; c < 256; ++c) EXPECT_EQ(found[static_cast<std::size_t>(c)], 0) << c;
      found.resize(kHidden);
      EXPECT_EQ(found, want);
      EXPECT_NE(want, std::vector<std::uint16_t>(kHidden, want[0]));  // something was computed
    }
  }
}

}  // namespace
}  // namespace megamoe
