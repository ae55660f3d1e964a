#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

// Random contents for device memory, as functions of a seed and a place, and reading through
// memory: what a bench puts where a checkpoint's weights would be.

namespace megamoe {

/// e4m3 codes of normal values with a deviation of 100; count is a multiple of 16.
cudaError_t launch_fill_e4m3(std::byte* codes, std::size_t count, std::uint64_t seed,
                             cudaStream_t stream);

/// FP32 within middle / 2 .. middle * 2, uniform in the exponent.
cudaError_t launch_fill_scales(float* scales, std::size_t count, float middle, std::uint64_t seed,
                               cudaStream_t stream);

/// BF16 values of deviation 1.
cudaError_t launch_fill_bf16(std::uint16_t* values, std::size_t count, std::uint64_t seed,
                             cudaStream_t stream);

/// Reads `bytes` (a multiple of 16) once, so that L2 holds nothing else; leaves no dirty lines.
/// Writes to `sink` only what no memory of this kind holds.
cudaError_t launch_read_through(const std::byte* memory, std::size_t bytes, std::uint32_t* sink,
                                cudaStream_t stream);

}  // namespace megamoe
