#pragma once

#include "protocol/ring.hpp"
#include "protocol/tickets.hpp"
#include "sim/cta_shared.hpp"

namespace megamoe::sim {

/// The scheduler of a CTA, composed as src/roles/scheduler.cuh is. A tile's first weights start
/// once a stage of the ring is free; then it waits for both of the tile's conditions, its inputs
/// and in L1 the act slot, while weights of further stages start; the activations follow. It holds
/// no other ticket while it waits: the next one is claimed some stages before the tile's end, and
/// once before the end it looks whether the conditions of that one are met. What is loaded depends
/// on nobody outside the CTA any more.
class TileScheduler {
 public:
  TileScheduler(SimCall& c, CtaShared& shared, Work& work)
      : c_(c), shared_(shared), work_(work), schedule_(c.g, shared.plan.plan().num_blocks()) {}

  /// False: a wait gave up. Math then finds the ring closed.
  bool run();

 private:
  /// Stages before a tile's end at which the next ticket is claimed, and at which its conditions
  /// are looked at.
  static constexpr u32 kClaimStages = 2, kPeekStages = 1;

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
  bool bring(u32 ticket);
  bool load();
  bool bring_all();
  bool wait_free();
  bool start_stages(u32 left);
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
  u32 next_ = 0;        // the ticket after it, once claimed
  bool ready_ = false;  // the conditions of the next tile were met at a look
};

}  // namespace megamoe::sim
