#pragma once

#include <deque>
#include <vector>

#include "protocol/agents/plan_storage.hpp"
#include "sim/work.hpp"

namespace megamoe::sim {

using SimCall = protocol::Call<SimEnv>;

/// A tile on its way through the roles of a CTA.
struct Tile {
  bool last = false;  ///< no more follow
  bool is_l2 = false;
  protocol::BlockRef block;
  u32 first_granule = 0;
  u32 granules = 0;
  u32 wave = 0;
  std::vector<u64> rows;  ///< what the loader has read
};

/// Shared memory of a CTA: a queue of tiles, and barriers that count how far each role is.
struct CtaShared {
  std::deque<Tile> tiles;  ///< tile i is written before `queued` passes i
  u64 queued = 0;          ///< by the scheduler
  u64 loaded = 0;          ///< by the loader's copies
  u64 consumed = 0;        ///< by math: the stage may be loaded again
  u64 computed = 0;        ///< by math: results are stored
};

/// The GEMM side of a CTA as a GPU runs it. Each role returns false once the call was aborted.
///   scheduler  claims tickets ahead, waits for their inputs, queues them
///   loader     starts the bulk copies of a tile's inputs, at most kStages tiles ahead of math
///   math       consumes them, waits for the act slot, stores results
///   publisher  tells the others: l1_done; arrived and l2_done
class CtaRoles {
 public:
  static constexpr u64 kStages = 2;
  static constexpr u64 kAhead = 2;  ///< tiles that the scheduler claims beyond math

  static bool scheduler(SimCall& c, CtaShared& shared);
  static bool loader(SimCall& c, CtaShared& shared, Work& work);
  static bool math(SimCall& c, CtaShared& shared, Work& work);
  static bool publisher(SimCall& c, CtaShared& shared, Work& work);

 private:
  static bool is(SimCall& c, Mutant mutant) { return c.env.machine().mutation().is(mutant); }
  static void arrive(SimCall& c, u64& barrier);
  static bool wait_for(SimCall& c, const u64& barrier, u64 target);
  static bool wait_inputs(SimCall& c, const Tile& tile);
  static bool queue_tile(SimCall& c, CtaShared& shared, Tile tile);
  static bool queue_wave(SimCall& c, CtaShared& shared, const protocol::Plan& plan, u32 wave);
  static void publish(SimCall& c, Work& work, const Tile& tile);
};

}  // namespace megamoe::sim
