#include "cpu/gemm.hpp"

#include <Eigen/Core>
#include <cstdint>
#include <cstring>

#include "config/kernel_config.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/ue8m0.hpp"

namespace megamoe::cpu {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;
using ConstMap = Eigen::Map<const Matrix>;

constexpr int kMxGroup = 32;

const std::uint8_t* bytes(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

void decode_e4m3(const std::uint8_t* codes, float* values) {
  for (int i = 0; i < kGranule; ++i) values[i] = kE4m3Values[codes[i]];
}

void decode_bf16(const std::byte* codes, float* values) {
  for (int i = 0; i < kGranule; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, codes + 2 * i, sizeof bits);
    values[i] = bf16_to_float(bits);
  }
}

/// 128 e2m1 values, low nibble first, with their four UE8M0 scales: exact in FP32.
void decode_mxfp4(const std::uint8_t* codes, const std::uint8_t* scales, float* values) {
  for (int group = 0; group < kGranule / kMxGroup; ++group) {
    float table[16];
    const float scale = ue8m0_to_float(scales[group]);
    for (unsigned code = 0; code < 16; ++code)
      table[code] = e2m1_to_float(static_cast<std::uint8_t>(code)) * scale;
    for (int i = 0; i < kMxGroup / 2; ++i) {
      const std::uint8_t pair = codes[group * kMxGroup / 2 + i];
      values[group * kMxGroup + 2 * i] = table[pair & 15U];
      values[group * kMxGroup + 2 * i + 1] = table[pair >> 4U];
    }
  }
}

float load_float(const std::byte* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace

void TileGemm::load_activations(const ActivationRows& a, int k_block) {
  for (int row = 0; row < a.rows; ++row) {
    float* values = a_.data() + static_cast<std::size_t>(row) * kGranule;
    const std::size_t first =
        static_cast<std::size_t>(row) * a.channels + static_cast<std::size_t>(k_block) * kGranule;
    if (precision_ == Precision::bf16) {
      decode_bf16(a.codes + 2 * first, values);
      continue;
    }
    decode_e4m3(bytes(a.codes) + first, values);
    if (precision_ != Precision::mxfp8_mxfp4) continue;
    for (int group = 0; group < kGranule / kMxGroup; ++group) {
      const int scale_row = k_block * (kGranule / kMxGroup) + group;
      const float scale = ue8m0_to_float(
          bytes(a.scales)[static_cast<std::size_t>(scale_row) * a.scale_stride + row]);
      for (int i = 0; i < kMxGroup; ++i) values[group * kMxGroup + i] *= scale;
    }
  }
}

void TileGemm::load_weights(const WeightRows& w, int channels, int k_block) {
  const std::size_t k = static_cast<std::size_t>(k_block) * kGranule;
  for (int row = 0; row < w.rows; ++row) {
    float* values = w_.data() + static_cast<std::size_t>(row) * kGranule;
    const std::size_t first = static_cast<std::size_t>(row) * channels + k;
    switch (precision_) {
      case Precision::fp8:
        decode_e4m3(bytes(w.codes) + first, values);
        break;
      case Precision::bf16:
        decode_bf16(w.codes + 2 * first, values);
        break;
      case Precision::mxfp4:
      case Precision::mxfp8_mxfp4:
        decode_mxfp4(bytes(w.codes) + first / 2, bytes(w.scales) + first / kMxGroup, values);
        break;
    }
  }
}

void TileGemm::multiply(const ActivationRows& a, const WeightRows& w, float* out) {
  a_.resize(static_cast<std::size_t>(a.rows) * kGranule);
  w_.resize(static_cast<std::size_t>(w.rows) * kGranule);
  partial_.resize(static_cast<std::size_t>(a.rows) * w.rows);
  std::memset(out, 0, partial_.size() * sizeof(float));
  const bool row_scales = precision_ == Precision::fp8 || precision_ == Precision::mxfp4;
  const bool block_scales = precision_ == Precision::fp8;
  for (int kb = 0; kb < a.channels / kGranule; ++kb) {
    load_activations(a, kb);
    load_weights(w, a.channels, kb);
    Map partial(partial_.data(), a.rows, w.rows);
    partial.noalias() =
        ConstMap(a_.data(), a.rows, kGranule) * ConstMap(w_.data(), w.rows, kGranule).transpose();
    for (int row = 0; row < a.rows; ++row) {
      const float row_scale =
          row_scales
              ? load_float(a.scales +
                           sizeof(float) * (static_cast<std::size_t>(kb) * a.scale_stride + row))
              : 1.0F;
      const float scale[2] = {block_scales ? row_scale * w.block_scales[0][kb] : row_scale,
                              block_scales ? row_scale * w.block_scales[1][kb] : row_scale};
      const float* from = partial_.data() + static_cast<std::size_t>(row) * w.rows;
      float* to = out + static_cast<std::size_t>(row) * w.rows;
      for (int n = 0; n < w.rows; n += 16) {
        for (int i = n; i < n + 8; ++i) to[i] += scale[0] * from[i];
        for (int i = n + 8; i < n + 16; ++i) to[i] += scale[1] * from[i];
      }
    }
  }
}

}  // namespace megamoe::cpu
