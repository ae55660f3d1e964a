#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

// One GEMM role alone: loader, main loop and epilogue of one matrix of 32 (or fewer) experts, with
// all inputs ready. The interface between the kernels (one instance per file) and the programs.

namespace megamoe::bench {

/// A role that stops without a word, to see that the others end.
enum class Lost : int {
  nobody,
  loader,     ///< after its first tile
  consumers,  ///< before their first
};

/// What one launch computes. A block is kTokens rows of one expert; the blocks of an expert are
/// consecutive, the same number for every expert.
struct GemmParams {
  bool second_matrix;  ///< L2: act x W2 -> BF16 rows; otherwise L1: x W1 -> activation -> act ring
  int experts;
  int blocks_per_expert;
  int hidden, intermediate;
  const int* block_rows;    ///< [blocks] valid rows of each block
  const float* act_scales;  ///< [blocks][K/128][kTokens]
  const float*
      weight_scales;      ///< [experts][weight rows / 128][K/128], gate blocks before up blocks
  std::byte* act_codes;   ///< out, L1: [blocks * kTokens][intermediate]
  float* act_scales_out;  ///< out, L1: [blocks][intermediate/128][kTokens]
  std::byte* rows_out;    ///< out, L2: BF16 [blocks * kTokens][hidden]
  float clamp;
  std::uint64_t deadline_ns;  ///< how long a wait may last
  unsigned* faults;           ///< counts threads that gave up
  Lost lost;
  std::uint64_t* clocks;  ///< [CTAs][2] out: SM cycles and nanoseconds that the loader ran

  [[nodiscard]] __host__ __device__ int blocks() const { return experts * blocks_per_expert; }
  [[nodiscard]] __host__ __device__ int k() const { return second_matrix ? intermediate : hidden; }
  [[nodiscard]] __host__ __device__ int weight_rows() const {
    return second_matrix ? hidden : 2 * intermediate;
  }
  [[nodiscard]] __host__ __device__ int columns() const { return (weight_rows() + 255) / 256; }
};

/// One compiled instance.
struct GemmInstance {
  const char* name;
  bool decode;
  int tokens;  ///< rows per block
  int stages;
  bool fast_math;
  int shared_bytes;
  int threads;
  const void* kernel;
};

/// All instances of a program, in the order of their files.
std::vector<GemmInstance> decode_instances();
std::vector<GemmInstance> prefill_instances();

}  // namespace megamoe::bench
