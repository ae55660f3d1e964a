#include "kernels/instances.hpp"

#include <array>

#include "kernels/fused_table.hpp"

namespace megamoe {

std::span<const FusedInstance> fused_instances() {
  static const std::array table = {fused_decode_8(), fused_decode_16(), fused_decode_32(),
                                   fused_decode_64(), fused_prefill_128()};
  return table;
}

const FusedInstance* find_fused_instance(int block_rows) {
  for (const FusedInstance& instance : fused_instances()) {
    if (instance.block_rows == block_rows) return &instance;
  }
  return nullptr;
}

}  // namespace megamoe
