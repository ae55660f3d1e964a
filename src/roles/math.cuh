#pragma once

#include "roles/cta.cuh"
#include "roles/decode_epilogue.cuh"
#include "roles/done_ring.cuh"
#include "roles/prefill_epilogue.cuh"
#include "roles/trace.cuh"

// Math: the consumer warps. They know tiles by what the loader wrote beside them, and nothing of
// the schedule.
// Waits for: full[] of the ring; empty[] of the done ring; in decode's L1 the other consumer warps.
// Publishes: empty[] of the ring; the done ring.

namespace megamoe {

/// Where an epilogue's results go.
template <class Shape>
class TileOutputs {
 public:
  MEGAMOE_DEVICE explicit TileOutputs(const RankParams& rank) : rank_(rank) {}

  MEGAMOE_DEVICE ActBlock act_block(int block) const {
    const protocol::Geometry& g = rank_.geometry;
    const std::int64_t row =
        static_cast<std::int64_t>(static_cast<protocol::u32>(block) % g.act_slots) * Shape::kTokens;
    return {.codes = rank_.memory.act() + row * g.intermediate_granules * kGranule,
            .scales =
                reinterpret_cast<float*>(rank_.memory.act_scales()) + row * g.intermediate_granules,
            .intermediate = static_cast<int>(g.intermediate_granules * kGranule)};
  }

  /// Gives the combine slot of a row of the block, on the row's source rank.
  MEGAMOE_DEVICE auto row_pointer(int block) const {
    const protocol::Geometry& g = rank_.geometry;
    const protocol::u64* metas =
        rank_.memory.row_metas() +
        static_cast<std::int64_t>(static_cast<protocol::u32>(block) % g.meta_slots()) *
            Shape::kTokens;
    return [this, metas](int row) {
      const protocol::Geometry& geometry = rank_.geometry;
      const protocol::u64 meta = metas[row];
      const protocol::u32 index = protocol::value_of(meta);
      const protocol::u32 token = index / geometry.contributions;
      const protocol::u32 slot = index - token * geometry.contributions;
      const std::int64_t combine_row = static_cast<std::int64_t>(slot) * geometry.capacity + token;
      return rank_.memory.peer(protocol::tag_of(meta)) + rank_.memory.symmetric().combine +
             combine_row * geometry.hidden_granules * kGranule * 2;
    };
  }

 private:
  const RankParams& rank_;
};

/// By all lanes of a consumer warp that has given up, apart from its main loop: the compiler would
/// give up uniform registers there for what this needs.
MEGAMOE_DEVICE void raise_math_fault(const CtaState& state) {
  if (ptx::lane_id() != 0) return;
  DeviceEnv env;
  DeviceCall c = make_call(env, state, protocol::Role::math);
  protocol::raise_inner_fault(c, state.math_gave_up, c.g.rank, 0);
}

/// By all consumer threads. False in all lanes of a warp: a wait gave up, in the phase that
/// `state.math_gave_up` then says. `amax_words`: see SharedAmax (decode only).
template <class RingType>
MEGAMOE_DEVICE bool consume_tiles(const RingType& ring,
                                  const DoneRing<typename RingType::Shape>& done, CtaState& state,
                                  std::uint32_t* amax_words, const Tracer& trace) {
  using Shape = typename RingType::Shape;
  constexpr int kAmaxBarrier = 1;
  const ConsumerThread thread = consumer_thread(static_cast<int>(threadIdx.x));
  const ptx::Patience for_stage = inner_patience(state, protocol::Phase::full_stage);
  const ptx::Patience for_room = inner_patience(state, protocol::Phase::tile_room);
  const TileOutputs<Shape> out(state.rank);
  const Swiglu<true> activation{state.rank.clamp};
  const int hidden = static_cast<int>(state.rank.geometry.hidden_granules) * kGranule;
  typename DoneRing<Shape>::Position at = 0;
  const auto begun = [&](const TileInfo& info) { trace.mark(TraceMark::tile_begun, info.block); };
  bool ok;
  if constexpr (Shape::kFamily == Family::decode) {
    SharedAmax<Shape> amax{amax_words};
    ok = decode_loop(
        ring, thread, for_stage, begun, [&](const TileInfo& info, DecodeAccumulators<Shape>& acc) {
          trace.mark(TraceMark::tile_computed, info.block);
          if ((info.flags & kTileL2) != 0) {
            decode_l2_epilogue<Shape>(acc, thread, info, hidden, out.row_pointer(info.block));
          } else {
            decode_l1_epilogue<Shape>(acc, thread, info, out.act_block(info.block), activation,
                                      amax, kAmaxBarrier);
          }
          const bool pushed = done.push(at, info, thread, for_room);
          trace.mark(TraceMark::tile_stored, info.block);
          return pushed;
        });
  } else {
    ok = prefill_loop(
        ring, thread, for_stage, begun, [&](const TileInfo& info, PrefillAccumulators& acc) {
          trace.mark(TraceMark::tile_computed, info.block);
          if ((info.flags & kTileL2) != 0) {
            prefill_l2_epilogue(acc, thread, info, hidden, out.row_pointer(info.block));
          } else {
            prefill_l1_epilogue(acc, thread, info, out.act_block(info.block), activation);
          }
          const bool pushed = done.push(at, info, thread, for_room);
          trace.mark(TraceMark::tile_stored, info.block);
          return pushed;
        });
  }
  constexpr auto kNoRoom = DoneRing<Shape>::kGaveUp;
  if (at != kNoRoom && done.push(at, end_of_tiles(), thread, for_room) && ok) return true;
  state.math_gave_up = at == kNoRoom ? protocol::Phase::tile_room : protocol::Phase::full_stage;
  return false;
}

}  // namespace megamoe
