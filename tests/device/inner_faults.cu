// Instances of the fused kernel in which a role does not tell another one of its CTA that nothing
// more comes, once all of the call's work is done: nobody's wait but the other role's is in vain.
// A program that contains this file's functions does not take the shipped instances of blocks of 16
// and 128 rows from the library.
#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"

namespace megamoe {
namespace {

struct SilentSchedulerDecode : DecodeShape<16, 2> {};
struct SilentMathPrefill : PrefillShape {};

}  // namespace

template <>
MEGAMOE_DEVICE bool load_end(const SharedPlan<SilentSchedulerDecode>::RingType& /*ring*/,
                             RingPosition& /*at*/, ptx::Patience /*patience*/) {
  return true;
}

template <>
MEGAMOE_DEVICE bool DoneRing<SilentMathPrefill>::push(Position& at, const TileInfo& tile,
                                                      const ConsumerThread& thread,
                                                      ptx::Patience patience) const {
  if ((tile.flags & kTileEnd) != 0) return true;
  return DoneRing<PrefillShape>{base}.push(at, tile, thread, patience);
}

FusedInstance fused_decode_16() {
  return fused_instance<SilentSchedulerDecode>("decode_16, silent scheduler");
}
FusedInstance fused_prefill_128() {
  return fused_instance<SilentMathPrefill>("prefill_128, silent math");
}

}  // namespace megamoe
