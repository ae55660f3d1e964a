// The row pull alone: rows picked at random from a source region, into blocks of the pool.
//
// usage: role_pull
// The source is this GPU's own memory and, when a second GPU with peer access is present, that
// one's. Checks every byte of each form, then prints medians; exit status 1 when one is off.

#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "bench/roles/bench_cuda.hpp"
#include "bench/roles/random_data.hpp"
#include "roles/pull.cuh"

namespace megamoe::bench {
namespace {

constexpr int kChunkRows = 8;
constexpr int kMaxWarps = 8;
constexpr std::uint64_t kDeadlineNs = 2'000'000'000;

struct PullParams {
  const std::byte* source_x;
  const float* source_scales;
  const int* source_row;  ///< [rows] which row of the source each pool row is
  std::byte* pool_x;      ///< [rows][hidden]
  float* pool_scales;     ///< [blocks][hidden/128][block_rows]
  int rows, hidden, block_rows;
  unsigned* faults;
};

using Staging = PullStaging<6, 4096>;

/// Chunks of kChunkRows rows, dealt to the warps in turn.
template <bool kBulk>
__global__ void pull_role(const PullParams p) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int picked[kMaxWarps][kChunkRows];  // a chunk's rows, as the list entries would be
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  constexpr int kStagingBytes = (Staging::kSharedBytes + 127) / 128 * 128;
  Staging staging{ptx::shared_address(shared) + (kBulk ? warp * kStagingBytes : 0)};
  if (kBulk && lane == 0) staging.init();
  __syncthreads();
  const ptx::Patience patience{kDeadlineNs};
  const ptx::CachePolicy policy = ptx::evict_first_policy();
  const int groups = p.hidden / 128;
  const auto chunks = (p.rows + kChunkRows - 1) / kChunkRows;
  for (int chunk = static_cast<int>(blockIdx.x) * warps + warp; chunk < chunks;
       chunk += static_cast<int>(gridDim.x) * warps) {
    const int first = chunk * kChunkRows, count = min(kChunkRows, p.rows - first);
    const int block = first / p.block_rows;
    if (lane < count) picked[warp][lane] = p.source_row[first + lane];
    __syncwarp();
    const auto row_source = [&](int i) {
      const std::int64_t row = picked[warp][i];
      return PullRow{.x = p.source_x + row * p.hidden, .scales = p.source_scales + row * groups};
    };
    const PullTarget target = {.x = p.pool_x + static_cast<std::int64_t>(first) * p.hidden,
                               .scales = p.pool_scales +
                                         static_cast<std::int64_t>(block) * groups * p.block_rows +
                                         first % p.block_rows,
                               .row_bytes = p.hidden,
                               .block_rows = p.block_rows};
    bool ok = true;
    if constexpr (kBulk) {
      const PulledSoFar pulled =
          pull_rows_by_bulk(staging, row_source, count, target, policy, patience, lane);
      ok = pulled.rows == count;
      if (!ok && lane == 0) staging.drain(pulled.in_flight, patience);
    } else {
      for (int i = 0; i < count; ++i) {
        pull_row_by_loads(row_source(i).x, target.x + static_cast<std::int64_t>(i) * p.hidden,
                          p.hidden, lane);
      }
      pull_scales(row_source, count, target, lane);
    }
    __syncwarp();
    if (!ok) {
      if (lane == 0) atomicAdd(p.faults, 1U);
      return;
    }
  }
}

struct PullData {
  int rows, hidden, block_rows, source_rows;
  DeviceArray<std::uint8_t> source, pool;
  DeviceArray<float> source_scales, pool_scales;
  DeviceArray<int> source_row;
  DeviceArray<unsigned> faults{std::size_t{1}};
  std::vector<int> host_rows;

  PullData(int device, int num_rows, int hidden_size, int rows_per_block)
      : rows(num_rows), hidden(hidden_size), block_rows(rows_per_block), source_rows(num_rows * 2) {
    const std::size_t groups = static_cast<std::size_t>(hidden) / 128;
    const std::size_t padded =
        static_cast<std::size_t>((rows + block_rows - 1) / block_rows) * block_rows;
    bench::check(cudaSetDevice(device), "cudaSetDevice");
    source = DeviceArray<std::uint8_t>(static_cast<std::size_t>(source_rows) * hidden);
    source_scales = DeviceArray<float>(static_cast<std::size_t>(source_rows) * groups);
    fill_codes(source.get(), source.size(), 3);
    fill_scales(source_scales.get(), source_scales.size(), 4, 1.0F);
    bench::check(cudaSetDevice(0), "cudaSetDevice");
    pool = DeviceArray<std::uint8_t>(padded * hidden);
    pool_scales = DeviceArray<float>(padded * groups);
    for (int i = 0; i < rows; ++i) {
      host_rows.push_back(static_cast<int>(random_word(8, static_cast<std::uint64_t>(i)) %
                                           static_cast<std::uint32_t>(source_rows)));
    }
    source_row = DeviceArray<int>(host_rows);
    faults.fill_bytes(0);
  }

  void launch(cudaStream_t stream, bool bulk, int ctas, int warps) {
    const PullParams params = {.source_x = reinterpret_cast<const std::byte*>(source.get()),
                               .source_scales = source_scales.get(),
                               .source_row = source_row.get(),
                               .pool_x = reinterpret_cast<std::byte*>(pool.get()),
                               .pool_scales = pool_scales.get(),
                               .rows = rows,
                               .hidden = hidden,
                               .block_rows = block_rows,
                               .faults = faults.get()};
    const int shared = bulk ? warps * ((Staging::kSharedBytes + 127) / 128 * 128) : 0;
    const auto kernel = bulk ? pull_role<true> : pull_role<false>;
    bench::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                 "shared memory");
    kernel<<<ctas, warps * 32, shared, stream>>>(params);
    bench::check(cudaGetLastError(), "pull_role");
  }

  bool check(bool bulk, int warps) {
    pool.fill_bytes(0x7E);
    pool_scales.fill_bytes(0xFF);
    launch(nullptr, bulk, 5, warps);
    bench::check(cudaDeviceSynchronize(), "pull_role");
    const auto x = pool.to_host();
    const auto scales = pool_scales.to_host();
    const auto table = normal_codes();
    const int groups = hidden / 128;
    bool good = faults.to_host()[0] == 0;
    for (int row = 0; good && row < rows; ++row) {
      const auto from = static_cast<std::uint64_t>(host_rows[static_cast<std::size_t>(row)]);
      for (int i = 0; i < hidden; ++i) {
        good = good && x[static_cast<std::size_t>(row) * hidden + i] ==
                           random_code(table, 3, from * static_cast<std::uint64_t>(hidden) + i);
      }
      for (int g = 0; g < groups; ++g) {
        const auto at = (static_cast<std::size_t>(row / block_rows) * groups + g) * block_rows +
                        row % block_rows;
        good = good &&
               scales[at] == random_scale(4, from * static_cast<std::uint64_t>(groups) + g, 1.0F);
      }
    }
    return good;
  }
};

bool check_all(int device, const char* where) {
  bool good = true;
  struct Shape {
    int rows, hidden, block_rows;
  };
  for (const Shape s : {Shape{5, 128, 8}, Shape{77, 640, 16}, Shape{300, 4096, 128},
                        Shape{130, 7168, 64}, Shape{40, 10240, 32}}) {
    for (const bool bulk : {false, true}) {
      PullData data(device, s.rows, s.hidden, s.block_rows);
      const bool ok = data.check(bulk, bulk ? 2 : 4);
      std::printf("check %s rows %3d hidden %5d block %3d %s: %s\n", where, s.rows, s.hidden,
                  s.block_rows, bulk ? "bulk" : "loads", ok ? "ok" : "WRONG");
      good = good && ok;
    }
  }
  return good;
}

void time_all(int device, const char* where) {
  for (const int hidden : {4096, 7168}) {
    PullData data(device, 49152, hidden, 128);
    const double bytes = static_cast<double>(data.rows) * (hidden + hidden / 128 * 4);
    for (const bool bulk : {true, false}) {
      for (const int ctas : {16, 66, 132}) {
        for (const int warps : {1, 2, 4}) {
          const double us =
              time_launches([&](cudaStream_t s, int) { data.launch(s, bulk, ctas, warps); }, 1, 3);
          std::printf("TIME pull %s hidden %4d %-5s %3d CTAs x %d warps: %8.1f us %7.1f GB/s\n",
                      where, hidden, bulk ? "bulk" : "loads", ctas, warps, us, bytes / us * 1e-3);
        }
      }
    }
    PullData few(device, 64, hidden, 8);
    const double us =
        time_launches([&](cudaStream_t s, int) { few.launch(s, false, 16, 8); }, 8, 5);
    std::printf("TIME pull %s hidden %4d loads 64 rows, 16 CTAs x 8 warps: %6.1f us\n", where,
                hidden, us);
  }
}

int run() {
  bool good = check_all(0, "local");
  time_all(0, "local");
  int devices = 0, reachable = 0;
  check(cudaGetDeviceCount(&devices), "device count");
  if (devices > 1) check(cudaDeviceCanAccessPeer(&reachable, 0, 1), "peer access");
  if (reachable != 0) {
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaDeviceEnablePeerAccess(1, 0), "peer access");
    good = check_all(1, "peer ") && good;
    time_all(1, "peer ");
  } else {
    std::printf("no second GPU with peer access: remote pulls were not run\n");
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
    std::fprintf(stderr, "role_pull: %s\n", error.what());
    return 1;
  }
}
