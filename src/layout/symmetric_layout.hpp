#pragma once

#include <cstddef>
#include <cstdint>

#include "config/kernel_config.hpp"
#include "layout/carver.hpp"
#include "layout/elements.hpp"
#include "megamoe/problem.hpp"

namespace megamoe {

/// Changes whenever the symmetric or the local layout moves; ranks compare it at creation.
inline constexpr std::uint32_t kLayoutVersion = 1;

/// Words at the start of every rank's symmetric region that peers write. See PROTOCOL.md for each
/// word's rules.
struct SymmetricHeader {
  /// {generation, why}: raised by any rank that gives up; sticky until reset.
  alignas(128) std::uint64_t abort_word;
  /// [wave][dst]: rows x granules of contributions that rank dst has stored here; only grows.
  alignas(128) std::uint64_t arrived[kMaxWaves][kMaxRanks];
};
static_assert(offsetof(SymmetricHeader, abort_word) == 0);
static_assert(offsetof(SymmetricHeader, arrived) == 128);
static_assert(sizeof(SymmetricHeader) == 128 + 8 * kMaxWaves * kMaxRanks);

/// Byte offsets of the buffers of one rank's symmetric region. Depends on the Problem only.
struct SymmetricLayout {
  std::size_t header = 0;  ///< SymmetricHeader
  std::size_t count = 0;   ///< u64 {epoch, end} [2][kMaxWaves][src ranks][local experts]
  std::size_t list = 0;  ///< u64 {epoch, token * contributions + slot} [2][src ranks][list_entries]
  std::size_t x = 0;     ///< activations [capacity][hidden]
  std::size_t x_scales = 0;      ///< [capacity][scale_row_bytes]
  std::size_t topk_idx = 0;      ///< i64 [capacity][top_k]
  std::size_t topk_weights = 0;  ///< f32 [capacity][top_k]
  std::size_t combine = 0;       ///< BF16 [contributions][capacity][hidden]
  std::size_t bytes = 0;
};

/// Entries of the list that one source keeps at one destination, all waves together. Wave w starts
/// at w * ceil(capacity / waves) * contributions; one extra token per wave covers the rounding.
constexpr std::size_t list_entries(const Problem& p) {
  return static_cast<std::size_t>(p.max_tokens_per_rank + kMaxWaves) * p.contributions();
}

/// The one walk over the symmetric region.
template <class Visitor>
constexpr SymmetricLayout walk_symmetric(const Problem& p, Visitor&& visit) {
  Carver carver(visit);
  const std::size_t capacity = p.max_tokens_per_rank;
  const std::size_t sources = p.ranks;
  SymmetricLayout l;
  l.header = carver.take("header", "abort, arrived[waves][ranks]", sizeof(SymmetricHeader));
  l.count = carver.take("count", "[2][waves][src][local experts] u64",
                        2 * kMaxWaves * sources * p.local_experts() * 8);
  l.list = carver.take("list", "[2][src][(capacity + waves) * contributions] u64",
                       2 * sources * list_entries(p) * 8);
  l.x = carver.take("x", "[capacity][hidden]",
                    capacity * activation_row_bytes(p.precision, p.hidden));
  l.x_scales = carver.take("x_scales", "[capacity][hidden / scale channels]",
                           capacity * scale_row_bytes(p.precision, p.hidden));
  l.topk_idx = carver.take("topk_idx", "[capacity][top_k] i64", capacity * p.top_k * 8);
  l.topk_weights = carver.take("topk_weights", "[capacity][top_k] f32", capacity * p.top_k * 4);
  l.combine = carver.take("combine", "[contributions][capacity][hidden] bf16",
                          capacity * p.contributions() * p.hidden * 2);
  l.bytes = carver.end();
  return l;
}

constexpr SymmetricLayout symmetric_layout(const Problem& p) {
  return walk_symmetric(p, NoVisitor{});
}

}  // namespace megamoe
