// The sum alone: contributions ready in memory, every warp of the grid sums tokens.
//
// usage: role_sum
// Checks shapes and masks against a reference, then prints medians; exit status 1 when one is off.

#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include <cuda_bf16.h>

#include "bench/roles/bench_cuda.hpp"
#include "bench/roles/random_data.hpp"
#include "roles/sum.cuh"

namespace megamoe::bench {
namespace {

constexpr int kThreads = 384;

/// `warps_per_token` warps share a token, so that few tokens still occupy the GPU.
template <int kMaxSlots, int kAtOnce>
__global__ void __launch_bounds__(kThreads)
    sum_role(SumSource source, const std::int64_t* topk_idx, const float* topk_weights,
             std::byte* y, int tokens, int warps_per_token) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / 32);
  const int warps = static_cast<int>(gridDim.x) * kThreads / 32;
  for (int unit = warp; unit < tokens * warps_per_token; unit += warps) {
    const int token = unit / warps_per_token, part = unit % warps_per_token;
    const TokenSlots<kMaxSlots> slots(source, topk_idx + token * source.top_k,
                                      topk_weights + token * source.top_k);
    sum_pieces<kMaxSlots, kAtOnce>(source, slots, token,
                                   y + static_cast<std::int64_t>(token) * source.hidden * 2,
                                   part * 32 + lane, warps_per_token * 32);
  }
}

struct Case {
  int tokens, hidden, top_k, shared;
};

constexpr std::uint64_t kSeed = 5;

struct SumData {
  Case c;
  DeviceArray<std::uint16_t> combine, y;
  DeviceArray<std::int64_t> idx;
  DeviceArray<float> weights;
  std::vector<std::int64_t> host_idx;
  std::vector<float> host_weights;

  explicit SumData(const Case& shape)
      : c(shape),
        combine(static_cast<std::size_t>(c.top_k + c.shared) * c.tokens * c.hidden),
        y(static_cast<std::size_t>(c.tokens) * c.hidden) {
    fill_bf16(combine.get(), combine.size(), kSeed);
    for (int i = 0; i < c.tokens * c.top_k; ++i) {
      const std::uint32_t word = random_word(77, static_cast<std::uint64_t>(i));
      host_idx.push_back(
          word % 11 == 0 || i / c.top_k == 2 ? -1 : static_cast<std::int64_t>(word % 256));
      host_weights.push_back(random_scale(78, static_cast<std::uint64_t>(i), 0.125F));
    }
    idx = DeviceArray<std::int64_t>(host_idx);
    weights = DeviceArray<float>(host_weights);
  }

  void launch(cudaStream_t stream, int ctas, int at_once) {
    const SumSource source = {.combine = reinterpret_cast<const std::byte*>(combine.get()),
                              .slot_bytes = static_cast<std::int64_t>(c.tokens) * c.hidden * 2,
                              .hidden = c.hidden,
                              .top_k = c.top_k,
                              .shared = c.shared};
    int split = 1;
    while (split < 8 && c.tokens * split * 2 <= ctas * (kThreads / 32)) split *= 2;
    auto* out = reinterpret_cast<std::byte*>(y.get());
    const auto kernel = c.top_k + c.shared > 8 ? sum_role<20, 1>
                        : at_once == 1         ? sum_role<8, 1>
                                               : sum_role<8, 2>;
    kernel<<<ctas, kThreads, 0, stream>>>(source, idx.get(), weights.get(), out, c.tokens, split);
    bench::check(cudaGetLastError(), "sum_role");
  }

  /// Exactly the reference's bits: the same fused multiply-adds in the same order.
  bool check(int at_once) {
    y.fill_bytes(0xFF);
    launch(nullptr, 132, at_once);
    bench::check(cudaDeviceSynchronize(), "sum_role");
    const std::vector<std::uint16_t> got = y.to_host();
    const std::size_t slot = static_cast<std::size_t>(c.tokens) * c.hidden;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t token = i / static_cast<std::size_t>(c.hidden);
      float sum = 0;
      for (int s = 0; s < c.top_k + c.shared; ++s) {
        const std::size_t at =
            token * static_cast<std::size_t>(c.top_k) + static_cast<std::size_t>(s);
        if (s < c.top_k && host_idx[at] < 0) continue;
        const float weight = s < c.top_k ? host_weights[at] : 1.0F;
        sum = std::fma(
            weight, bf16_to_float(bf16_value(kSeed, static_cast<std::size_t>(s) * slot + i)), sum);
      }
      const __nv_bfloat16_raw want = __float2bfloat16(sum);
      if (got[i] != want.x) {
        std::printf("tokens %d hidden %d top_k %d shared %d: y[%zu] is %04x, not %04x\n", c.tokens,
                    c.hidden, c.top_k, c.shared, i, got[i], want.x);
        return false;
      }
    }
    return true;
  }
};

int run() {
  bool good = true;
  for (const Case& c : {Case{5, 128, 1, 0}, Case{33, 640, 6, 1}, Case{200, 1408, 8, 0},
                        Case{17, 2944, 4, 1}, Case{64, 4096, 16, 2}, Case{1, 7168, 8, 1}}) {
    SumData data(c);
    const bool ok = data.check(1) && data.check(2);
    std::printf("check tokens %4d hidden %5d top_k %2d shared %d: %s\n", c.tokens, c.hidden,
                c.top_k, c.shared, ok ? "ok" : "WRONG");
    good = good && ok;
  }
  for (const Case& c :
       {Case{1, 7168, 8, 0}, Case{8, 7168, 8, 0}, Case{128, 7168, 8, 0}, Case{2048, 4096, 6, 0},
        Case{2048, 7168, 8, 0}, Case{8192, 4096, 6, 0}, Case{8192, 7168, 8, 0}}) {
    SumData data(c);
    double bytes = 0;
    for (const std::int64_t id : data.host_idx) bytes += id >= 0;
    bytes = (bytes + c.tokens) * c.hidden * 2;
    struct Form {
      int ctas, at_once;
    };
    for (const Form f : {Form{132, 1}, Form{132, 2}, Form{264, 1}}) {
      const double us =
          time_launches([&](cudaStream_t s, int) { data.launch(s, f.ctas, f.at_once); }, 8, 7);
      std::printf(
          "TIME sum tokens %4d hidden %4d top_k %d, %3d CTAs, %d at once: %7.1f us %6.2f TB/s\n",
          c.tokens, c.hidden, c.top_k, f.ctas, f.at_once, us, bytes / us * 1e-6);
    }
  }
  std::printf("%s\n", good ? "all checks passed" : "A CHECK FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace megamoe::bench

int main() {
  try {
    return megamoe::bench::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "role_sum: %s\n", error.what());
    return 1;
  }
}
