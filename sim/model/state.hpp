#pragma once

#include <array>
#include <cstdint>

/// An explicit-state model of the control protocol: abstract agents, sequentially consistent steps,
/// all interleavings. It shares no code with src/protocol/ on purpose: it checks the design, the
/// simulator checks the code.
namespace megamoe::sim::model {

inline constexpr int kRanks = 3;
inline constexpr int kCtas = 2;
inline constexpr int kTokens = 3;  ///< per rank; each is one row and one block where it goes
inline constexpr int kCalls = 5;
inline constexpr int kSlots = 4;
inline constexpr int kBlocks = kRanks * kTokens;

using u8 = std::uint8_t;
using u16 = std::uint16_t;

enum class CourierAt : u8 {
  route,
  publish_counts,
  publish_list,
  plan,
  claim,
  ahead,
  slot,
  entry,
  copy,
  sum,
  done
};
/// An agent that multiplies. On the CPU: inputs, act_slot, l1 or l2, tell, all by itself. On a GPU
/// (`pipelined`) this is the scheduler: stage, inputs with the act slot, the next claim, load; what
/// is loaded goes on through math and publisher, who wait for nobody else.
enum class MathAt : u8 {
  plan,
  claim,
  stage,
  inputs,
  ahead,
  load,
  act_slot,
  l1,
  l2,
  tell,
  sum,
  done
};
/// An agent that sums: claims before it waits.
enum class SumAt : u8 { claim, await, add, done };
enum class CtaIs : u8 { absent, running, gone };

/// Numbers of blocks and tickets are kept plus 1, so that 0 is none.
struct Cta {
  CtaIs is;
  CourierAt courier;
  MathAt math;
  u8 dst;        ///< whom the courier is publishing to
  u8 pull;       ///< the block that the courier pulls
  u8 held;       ///< a block that it has pulled and not told of
  u8 pulled;     ///< whether it has pulled at all
  u8 ticket;     ///< the GEMM ticket in work
  u8 next;       ///< one that was claimed ahead
  u8 l1_untold;  ///< a block whose L1 is done and not told of
  u8 next_pull;  ///< a pull ticket that was claimed ahead
  u8 loaded;     ///< a ticket whose tile is in the ring of operands
  u8 computing;  ///< one that math has taken from it
  u8 stored;     ///< one in the done ring
  SumAt courier_sum;
  SumAt math_sum;
};

enum class RankIs : u8 { in_call, leaving, between, finished };

struct Rank {
  RankIs is;
  u8 call;
  u8 input;  ///< the call whose inputs are staged
  u8 routed;
  u8 pull_ticket;
  u8 gemm_ticket;
  u8 summed;
  u8 exits;
  u16 ready;  ///< bit per block, as rows_ready, l1_done and l2_done tell
  u16 l1;
  u16 l2;
  std::array<u8, kSlots> pool;  ///< which block is in a ring slot
  std::array<u8, kSlots> act;
  std::array<std::array<u8, kRanks>, 2> count;  ///< [parity][src]: the call that wrote it
  std::array<std::array<u8, kRanks>, 2> list;
  std::array<u8, kRanks> arrived;   ///< [dst], only grows
  std::array<u8, kRanks> expected;  ///< sums of the calls that have ended
  std::array<u8, kTokens> combine;  ///< the call that wrote a token's slot
  std::array<Cta, kCtas> cta;
};

struct State {
  std::array<Rank, kRanks> rank;
};

}  // namespace megamoe::sim::model
