#include "ref/random_fill.hpp"

#include <cstring>
#include <numbers>

#include "numerics/bf16.hpp"
#include "numerics/e2m1.hpp"
#include "numerics/e4m3.hpp"

namespace megamoe::ref {
namespace {

/// The value below which a normal variable falls with probability p, by bisection.
double normal_quantile(double p) {
  double low = -10.0;
  double high = 10.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle * std::numbers::sqrt2 / 2) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// `encode(quantile)` of kCount equally likely normal values: an inverse distribution by table.
template <std::size_t kCount, class Encode>
auto quantile_table(Encode encode) {
  std::array<decltype(encode(0.0F)), kCount> table{};
  for (std::size_t i = 0; i < kCount; ++i) {
    const double p = (static_cast<double>(i) + 0.5) / static_cast<double>(kCount);
    table[i] = encode(static_cast<float>(normal_quantile(p)));
  }
  return table;
}

/// Fills `out` from `make(bits)`, an integer that holds what 64 random bits make.
template <class Make>
void fill(std::uint64_t key, std::span<std::byte> out, Make make) {
  constexpr std::size_t kChunk = sizeof(make(std::uint64_t{}));
  std::uint64_t counter = 0;
  std::size_t at = 0;
  for (; at + kChunk <= out.size(); at += kChunk) {
    const auto chunk = make(random_bits(key, counter++));
    std::memcpy(out.data() + at, &chunk, kChunk);
  }
  if (at < out.size()) {
    const auto chunk = make(random_bits(key, counter));
    std::memcpy(out.data() + at, &chunk, out.size() - at);
  }
}

}  // namespace

double random_normal(std::uint64_t key, std::uint64_t counter) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random_uniform(key, 2 * counter)));
  return radius * std::cos(2.0 * std::numbers::pi * random_uniform(key, 2 * counter + 1));
}

void fill_e4m3(std::uint64_t key, std::span<std::byte> codes) {
  static const auto table =
      quantile_table<4096>([](float q) { return float_to_e4m3(q * kE4m3Deviation); });
  fill(key, codes, [](std::uint64_t bits) {
    std::uint32_t chunk = 0;
    for (unsigned i = 0; i < 4; ++i)
      chunk |= static_cast<std::uint32_t>(table[(bits >> (16 * i + 4)) & 0xfffU]) << (8 * i);
    return chunk;
  });
}

void fill_e2m1(std::uint64_t key, std::span<std::byte> packed) {
  static const auto table =
      quantile_table<256>([](float q) { return float_to_e2m1(q * kE2m1Deviation); });
  fill(key, packed, [](std::uint64_t bits) {
    std::uint32_t chunk = 0;
    for (unsigned i = 0; i < 8; ++i)
      chunk |= static_cast<std::uint32_t>(table[(bits >> (8 * i)) & 0xffU]) << (4 * i);
    return chunk;
  });
}

void fill_bf16(std::uint64_t key, float deviation, std::span<std::byte> values) {
  static const auto table = quantile_table<4096>([](float q) { return float_to_bf16(q); });
  const int exponent = static_cast<int>(std::lround(std::log2(deviation)));
  const auto shift = static_cast<std::uint16_t>(static_cast<unsigned>(exponent) << 7);
  fill(key, values, [shift](std::uint64_t bits) {
    std::uint64_t chunk = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const auto lane = static_cast<std::uint16_t>(bits >> (16 * i));
      // The table has 4096 values; the other four random bits vary the mantissa's last ones.
      const auto value = static_cast<std::uint16_t>((table[lane >> 4] ^ (lane & 0xfU)) + shift);
      chunk |= static_cast<std::uint64_t>(value) << (16 * i);
    }
    return chunk;
  });
}

}  // namespace megamoe::ref
