#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cli/bench_weights.hpp"
#include "host/cuda/event.hpp"
#include "kernels/fill.hpp"
#include "megamoe/problem.hpp"
#include "ref/random_case.hpp"

// What the ranks of a bench keep on their GPUs.

namespace megamoe::cli {

/// The ids and weights of one rank's tokens under one routing, on its GPU.
struct GpuRouting {
  GpuRouting(int device, const ref::TokenRouting& from)
      : num_tokens(from.num_tokens),
        slots(from.topk_idx.size()),
        ids(device, slots * sizeof(std::int64_t)),
        weights(device, slots * sizeof(float)) {
    const cuda::PrivateStream stream;
    cuda::check(cudaMemcpyAsync(ids.data(), from.topk_idx.data(), slots * sizeof(std::int64_t),
                                cudaMemcpyDefault, stream.get()),
                "copying ids");
    cuda::check(cudaMemcpyAsync(weights.data(), from.topk_weights.data(), slots * sizeof(float),
                                cudaMemcpyDefault, stream.get()),
                "copying weights");
    cuda::check(cudaStreamSynchronize(stream.get()), "copying a routing");
  }
  int num_tokens;
  std::size_t slots;
  cuda::DeviceBuffer ids, weights;
};

/// What one rank's calls use on its GPU. Made with the device current.
struct BenchRank {
  BenchRank(int device_index, const Problem& p, std::uint64_t seed)
      : device(device_index), hidden_states(device, values(p) * 2), y(device, values(p) * 2) {
    cuda::check(launch_fill_bf16(reinterpret_cast<std::uint16_t*>(hidden_states.data()), values(p),
                                 seed, stream.get()),
                "hidden states");
    cuda::check(cudaStreamSynchronize(stream.get()), "hidden states");
  }
  static std::size_t values(const Problem& p) {
    return static_cast<std::size_t>(p.max_tokens_per_rank) * static_cast<std::size_t>(p.hidden);
  }

  int device;
  std::vector<std::unique_ptr<RandomExperts>> weights;  ///< [weight sets]
  std::unique_ptr<RandomExperts> shared;
  cuda::DeviceBuffer hidden_states, y;
  cuda::PrivateStream stream;
  cuda::Event begin, end;
};

}  // namespace megamoe::cli
