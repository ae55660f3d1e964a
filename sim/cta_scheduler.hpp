#pragma once

#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"
#include "sim/cta_shared.hpp"

namespace megamoe::sim {

/// The scheduler of a CTA, composed as src/roles/scheduler.cuh is. It holds the ticket in work and
/// the next one, claimed ahead. A tile's first weights start once a stage of the ring is free; then
/// it waits for both of the tile's conditions, its inputs and in L1 the act slot, while weights of
/// further stages start; the activations follow. Before a tile's last stage it looks once whether
/// the next one's conditions are met. What is loaded depends on nobody outside the CTA any more.
class TileScheduler {
 public:
  TileScheduler(SimCall& c, CtaShared& shared, Work& work)
      : c_(c),
        shared_(shared),
        work_(work),
        schedule_{shared.plan.plan().num_blocks(), c.g.l1_tiles, c.g.l2_tiles, c.g.lag_blocks} {}

  /// False: a wait gave up.
  bool run();

 private:
  static constexpr u32 kPeekStages = 1;  ///< before a tile's end

  /// The two conditions of a tile, each watched by a lane of its own.
  struct Conditions {
    protocol::SlotWait inputs;
    protocol::SlotWait room;
    bool inputs_over = false;
    bool room_over = false;
  };

  u32 claim();
  [[nodiscard]] TileInfo info_of(u32 ticket) const;
  Conditions conditions_of(u32 ticket);
  bool look(Conditions& conditions);
  bool peek(u32 ticket);
  bool wait(Conditions conditions);
  bool bring(u32 ticket, u32 next);
  bool load(u32 next);
  void start_weights();
  void start_acts(u64 at);
  bool start_stage();
  void tell_end();
  bool load_end();

  SimCall& c_;
  CtaShared& shared_;
  Work& work_;
  protocol::GemmSchedule schedule_;
  TileInfo tile_;       // in work
  u64 first_ = 0;       // its first stage, counted over all rounds of the ring
  u64 at_ = 0;          // the next stage to be started
  bool ready_ = false;  // the conditions of the next tile were met at a look
};

}  // namespace megamoe::sim
