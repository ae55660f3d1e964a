#include "bench/roles/gemm_role.hpp"

namespace megamoe::bench {

GemmInstance decode_n8_w4();
GemmInstance decode_n8_w2();
GemmInstance decode_n16_w4();
GemmInstance decode_n16_w2();
GemmInstance decode_n32_w4();
GemmInstance decode_n32_w2();
GemmInstance decode_n64_w4();
GemmInstance decode_n64_w2();
GemmInstance prefill_precise();
GemmInstance prefill_fast();

std::vector<GemmInstance> decode_instances() {
  return {decode_n8_w4(),  decode_n8_w2(),  decode_n16_w4(), decode_n16_w2(),
          decode_n32_w4(), decode_n32_w2(), decode_n64_w4(), decode_n64_w2()};
}

std::vector<GemmInstance> prefill_instances() { return {prefill_precise(), prefill_fast()}; }

}  // namespace megamoe::bench
