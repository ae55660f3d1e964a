#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/agent.hpp"
#include "sim/word_memory.hpp"

namespace megamoe::sim {

/// Data that moves between agents without being ordered itself.
enum class CellKind : unsigned char {
  x,            ///< a staged row of x; [token]
  x_scales,     ///< [token]
  topk,         ///< ids and weights of a token; [token]
  pool,         ///< a pulled row; [slot][row]
  pool_scales,  ///< [slot][row]
  row_meta,     ///< [metadata slot][row]
  act,          ///< a granule of an activated row with its scale; [slot][row][granule]
  combine,      ///< a granule of a contribution; [contribution][token][granule]
  y,            ///< a granule of a token's sum; [token][granule]
  stage,        ///< of a CTA's ring of operands; [cta][stage]
  done_slot,    ///< of a CTA's done ring; [cta][slot]
};
inline constexpr std::size_t kCellKinds = 11;

enum class Proxy : unsigned char { generic, async };

/// Which cell: of `owner`, at up to three indices.
struct CellName {
  CellKind kind = CellKind::x;
  u32 group = 0;
  u32 owner = 0;
  u32 i = 0;
  u32 j = 0;
  u32 k = 0;
};
std::string to_string(const CellName& cell);

/// Cells with race clocks. An access that is not ordered after the last conflicting one, or is
/// ordered but lacks the proxy fence between them, fails the run. Values are tags, so wrong data is
/// found as well.
class Payload {
 public:
  /// Sizes of one kind's indices.
  using Shape = std::array<u32, 3>;
  Payload(std::vector<Place> places, u32 groups, u32 ranks,
          const std::array<Shape, kCellKinds>& shapes);

  u64 read(Agent& agent, const CellName& name, Proxy proxy, u64 step);
  void write(Agent& agent, const CellName& name, Proxy proxy, u64 value, u64 step);
  /// Waits for the bulk copies that `agent` has started.
  static void complete_async(Agent& agent) { agent.view.join(agent.async_view); }
  /// For checks that stand outside the run.
  [[nodiscard]] u64 latest(const CellName& name) { return cell(name).value; }

 private:
  struct Touch {
    const Agent* agent = nullptr;
    u64 step = 0;  ///< of the run
    u32 slot = 0;
    u32 time = 0;  ///< of the slot's clock
    Proxy proxy = Proxy::generic;
  };
  struct Cell {
    u64 value = 0;
    Touch write;
    std::vector<Touch> reads;  // since the write
  };

  Cell& cell(const CellName& name);
  Touch touch(Agent& agent, Proxy proxy, u64 step);
  void check(const Agent& agent, const Touch& before, Proxy proxy, const CellName& name,
             const char* what, u64 step) const;

  std::vector<Place> places_;
  u32 ranks_;
  std::array<Shape, kCellKinds> shapes_;
  std::array<std::size_t, kCellKinds> offsets_ = {};
  std::size_t per_rank_ = 0;
  std::vector<Cell> cells_;
};

}  // namespace megamoe::sim
