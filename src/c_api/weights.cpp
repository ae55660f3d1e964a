#include <fmt/format.h>

#include "c_api/structs.hpp"

using namespace megamoe::c_api;

namespace {

void require_channels(const char* name, int value, int most) {
  if (value < 128 || value > most || value % 128 != 0)
    refuse(fmt::format("{} = {} is not a multiple of 128 in 128..{}", name, value, most));
}

}  // namespace

megamoe_status megamoe_expert_bytes(int32_t precision, int32_t hidden, int32_t intermediate,
                                    size_t bytes[4]) {
  return guarded([&] {
    required(bytes, "bytes");
    require_channels("hidden", hidden, megamoe::kMaxHidden);
    require_channels("intermediate", intermediate, megamoe::kMaxIntermediate);
    const megamoe::ExpertBytes from =
        megamoe::expert_bytes(to_precision("precision", precision), hidden, intermediate);
    bytes[0] = from.w1;
    bytes[1] = from.w1_scales;
    bytes[2] = from.w2;
    bytes[3] = from.w2_scales;
  });
}

megamoe_status megamoe_interleave_rows(const void* from, void* to, int32_t intermediate,
                                       size_t row_bytes) {
  return guarded([&] {
    if (from == nullptr) refuse("from is NULL");
    if (to == nullptr) refuse("to is NULL");
    require_channels("intermediate", intermediate, megamoe::kMaxIntermediate);
    if (row_bytes == 0) refuse("row_bytes = 0");
    megamoe::interleave_rows(static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                             intermediate, row_bytes);
  });
}
