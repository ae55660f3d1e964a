// Rung 3: one tile of L1. The accumulators are compared as they are: with scales of 1 they are
// sums of products of codes, exact for small integers; with real scales they are the scaled result,
// bit for bit as the tensor core adds.
#include <cmath>
#include <cstring>
#include <random>

#include "host/tensor_maps.hpp"
#include "numerics/e4m3.hpp"
#include "ref/tensor_core.hpp"
#include "tests/ladder/one_tile.hpp"
#include "tests/ladder/rung.hpp"

namespace megamoe::ladder {
namespace {

/// One tile's operands on the host: [row][k] codes, [k / 128] scales.
struct Operands {
  int rows, k;
  std::vector<std::uint8_t> x, w;
  std::vector<float> x_scales;  ///< [k / 128][block rows]
  std::vector<float> w_scales;  ///< [2][k / 128]: gate, up
};

std::uint8_t small_integer(std::mt19937& rng) {
  return float_to_e4m3(static_cast<float>(static_cast<int>(rng() % 5) - 2));
}

std::uint8_t any_finite(std::mt19937& rng) {
  const auto code = static_cast<std::uint8_t>(rng() & 0xFFU);
  return (code & 0x7FU) == 0x7FU ? std::uint8_t{0} : code;
}

Operands make_operands(int block_rows, int rows, int k, bool integers, unsigned seed) {
  std::mt19937 rng(seed);
  Operands o{rows, k, {}, {}, {}, {}};
  const auto code = [&] { return integers ? small_integer(rng) : any_finite(rng); };
  const auto scale = [&] {
    return integers ? 1.0F : std::ldexp(1.0F + static_cast<float>(rng() % 1000) / 1000.0F, -9);
  };
  for (int i = 0; i < block_rows * k; ++i) o.x.push_back(code());
  for (int i = 0; i < kTileColumns * k; ++i) o.w.push_back(code());
  for (int i = 0; i < k / kGranule * block_rows; ++i) o.x_scales.push_back(scale());
  for (int i = 0; i < 2 * k / kGranule; ++i) o.w_scales.push_back(scale());
  return o;
}

/// What the accumulators should hold, bit for bit: [rows][tile columns].
std::vector<float> expected(const Operands& o, int block_rows) {
  const auto k = static_cast<std::size_t>(o.k), blocks = k / kGranule;
  ref::TensorCoreRows x(static_cast<std::size_t>(o.rows), k), w(kTileColumns, k);
  std::vector<float> scales(blocks);
  const auto codes = [&](const std::vector<std::uint8_t>& from, std::size_t row) {
    return reinterpret_cast<const std::byte*>(from.data() + row * k);
  };
  for (std::size_t row = 0; row < static_cast<std::size_t>(o.rows); ++row) {
    for (std::size_t b = 0; b < blocks; ++b)
      scales[b] = o.x_scales[b * static_cast<std::size_t>(block_rows) + row];
    x.set(row, codes(o.x, row), std::as_bytes(std::span(scales)).data());
  }
  for (std::size_t column = 0; column < kTileColumns; ++column) {
    const std::size_t up = column / 8 % 2;
    w.set(column, codes(o.w, column),
          std::as_bytes(std::span(o.w_scales).subspan(up * blocks, blocks)).data());
  }
  std::vector<float> sums;
  for (std::size_t row = 0; row < static_cast<std::size_t>(o.rows); ++row)
    for (std::size_t column = 0; column < kTileColumns; ++column)
      sums.push_back(ref::tensor_core_dot(x, row, w, column));
  return sums;
}

std::vector<float> run_tile(const Operands& o, int block_rows) {
  constexpr int kDevice = 0;
  const GpuArray<std::uint8_t> x(kDevice, std::span<const std::uint8_t>(o.x)),
      w(kDevice, std::span<const std::uint8_t>(o.w));
  const GpuArray<float> x_scales(kDevice, std::span<const float>(o.x_scales)),
      w_scales(kDevice, std::span<const float>(o.w_scales));
  const GpuArray<float> out(kDevice, static_cast<std::size_t>(block_rows * kTileColumns));
  const GpuArray<std::uint32_t> faults(kDevice, 1);
  const GpuStream stream(kDevice);
  const cuda::DeviceGuard guard(kDevice);
  cuda::check(cudaMemset(out.data(), 0xFF, static_cast<std::size_t>(block_rows * kTileColumns) * 4),
              "clearing");
  cuda::check(cudaDeviceSynchronize(), "clearing");
  OneTile tile{
      .weights = expert_weight_map(w.data(), 1, kTileColumns, o.k, kTileColumns, L2Promotion::none),
      .acts = row_map(x.data(), block_rows, o.k, block_rows, L2Promotion::none),
      .act_scales = x_scales.data(),
      .weight_scales = {w_scales.data(), w_scales.data() + o.k / kGranule},
      .k_blocks = o.k / kGranule,
      .rows = o.rows,
      .accumulators = out.data(),
      .faults = faults.data()};
  cuda::check(launch_one_tile(block_rows, tile, stream.get()), "launching one tile");
  cuda::check(cudaStreamSynchronize(stream.get()), "one tile");
  if (const std::uint32_t n = faults.download()[0]; n != 0) {
    throw Error(ErrorCode::fault,
                fmt::format("blocks of {}: {} threads lost patience", block_rows, n));
  }
  return out.download();
}

bool is_poison(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits == 0xFFFFFFFFU;
}

/// Compares one tile bit for bit; returns how many accumulators.
long check_tile(int block_rows, int rows, int k, bool integers, Failures& failures) {
  const Operands o = make_operands(block_rows, rows, k, integers, static_cast<unsigned>(k + rows));
  const std::vector<float> got = run_tile(o, block_rows), want = expected(o, block_rows);
  const char* what = integers ? "raw accumulator" : "scaled result";
  for (int row = 0; row < block_rows; ++row) {
    for (int column = 0; column < kTileColumns; ++column) {
      const auto i = static_cast<std::size_t>(row * kTileColumns + column);
      const auto where = [&] {
        return fmt::format("{}, blocks of {} rows, {} valid, K = {}, row {}, column {}", what,
                           block_rows, rows, k, row, column);
      };
      if (row >= rows) {
        failures.require(is_poison(got[i]), "stored beyond the valid rows: " + where());
      } else if (got[i] != want[i]) {
        failures.add(fmt::format("{}: {} instead of {}", where(), got[i], want[i]));
      }
    }
  }
  return static_cast<long>(want.size());
}

void run_case(const Arguments& arguments, int tokens, Failures& failures, std::string& note) {
  long compared = 0;
  for (const int block_rows : arguments.blocks) {
    const int rows = std::min(tokens, block_rows);
    for (const int k : {128, 640, 1024}) {
      compared += check_tile(block_rows, rows, k, true, failures);
      compared += check_tile(block_rows, rows, k, false, failures);
    }
  }
  note = fmt::format("{} accumulators bit for bit", compared);
}

}  // namespace
}  // namespace megamoe::ladder

int main(int argc, char** argv) {
  return megamoe::ladder::climb(argc, argv, "rung 3 L1 tile",
                                "raw FP32 accumulator and scaled result of one tile",
                                megamoe::ladder::run_case);
}
