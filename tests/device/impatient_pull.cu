#include "roles/pull.cuh"
#include "tests/device/impatient_pull.hpp"

namespace megamoe {
namespace {

using PatientStaging = PullStaging<kImpatientSlots, kImpatientPieceBytes>;

/// Gives up at one of the pieces that it is asked to wait for.
struct ImpatientStaging : PatientStaging {
  int pieces_left;

  __device__ bool wait(int slot, ptx::Patience patience) {
    return pieces_left-- != 0 && PatientStaging::wait(slot, patience);
  }
};

struct Pull {
  const std::byte* from;
  const float* from_scales;
  std::byte* to;
  std::byte* to_again;
  float* to_scales;
  int row_bytes, give_up_at;
  ImpatientPull* left;
};

__global__ void impatient_pull(const Pull p) {
  __shared__ __align__(128) std::byte shared[PatientStaging::kSharedBytes];
  const int lane = static_cast<int>(threadIdx.x);
  ImpatientStaging staging{{ptx::shared_address(shared)}, p.give_up_at};
  if (lane == 0) staging.init();
  __syncwarp();
  const auto row = [&](int i) {
    return PullRow{p.from + static_cast<std::int64_t>(i) * p.row_bytes,
                   p.from_scales + i * (p.row_bytes / 128)};
  };
  constexpr ptx::Patience kPatience{1'000'000'000};
  PullTarget target = {p.to, p.to_scales, p.row_bytes, kImpatientRows};
  const PulledSoFar pulled = pull_rows_by_bulk(staging, row, kImpatientRows, target,
                                               ptx::evict_first_policy(), kPatience, lane);
  if (lane == 0) {
    p.left->rows = pulled.rows;
    p.left->in_flight = pulled.in_flight;
    staging.drain(pulled.in_flight, kPatience);
  }
  __syncwarp();
  for (int i = lane; i < kImpatientSlots * kImpatientPieceBytes; i += 32)
    p.left->staging[i] = static_cast<unsigned char>(shared[i]);
  ptx::fence_proxy_async();
  __syncwarp();
  staging.pieces_left = -1;
  target.x = p.to_again;
  const PulledSoFar again = pull_rows_by_bulk(staging, row, kImpatientRows, target,
                                              ptx::evict_first_policy(), kPatience, lane);
  if (again.rows != kImpatientRows) ptx::trap();
}

}  // namespace

cudaError_t launch_impatient_pull(const void* from, const float* from_scales, void* to,
                                  void* to_again, float* to_scales, int row_bytes, int give_up_at,
                                  ImpatientPull* left) {
  const Pull pull = {static_cast<const std::byte*>(from),
                     from_scales,
                     static_cast<std::byte*>(to),
                     static_cast<std::byte*>(to_again),
                     to_scales,
                     row_bytes,
                     give_up_at,
                     left};
  impatient_pull<<<1, 32>>>(pull);
  return cudaGetLastError();
}

}  // namespace megamoe
