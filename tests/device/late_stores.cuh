#pragma once

#include <stdexcept>

#include "kernels/fused_moe.cuh"
#include "kernels/fused_table.hpp"
#include "tests/device/late_stores.hpp"

// Instances of the fused kernel in which one rank's L2 stores come late. The shapes are those of
// the shipped instances under other names, so that what they use can be specialised. A program that
// contains this file's functions does not take the shipped instances of blocks of 16 and 128 rows
// from the library.

namespace megamoe {

namespace {

struct LateStores {
  unsigned rank;
  unsigned long long ns;
};
__device__ LateStores late_stores;

struct LateDecode : DecodeShape<16, 2> {};
struct LatePrefill : PrefillShape {};

/// An epilogue asks where rows go just before it stores them.
template <class Shape>
class LateOutputs : public TileOutputs<Shape> {
 public:
  MEGAMOE_DEVICE explicit LateOutputs(const RankParams& rank)
      : TileOutputs<Shape>(rank), rank_(rank.geometry.rank) {}
  MEGAMOE_DEVICE auto row_pointer(int block) const {
    if (late_stores.rank == rank_ && late_stores.ns != 0) {
      const std::uint64_t start = ptx::globaltimer();
      while (ptx::globaltimer() - start < late_stores.ns) __nanosleep(1000);
    }
    return TileOutputs<Shape>::row_pointer(block);
  }

 private:
  protocol::u32 rank_;
};

}  // namespace

template <>
class TileOutputs<LateDecode> : public LateOutputs<DecodeShape<16, 2>> {
 public:
  using LateOutputs::LateOutputs;
};
template <>
class TileOutputs<LatePrefill> : public LateOutputs<PrefillShape> {
 public:
  using LateOutputs::LateOutputs;
};

FusedInstance fused_decode_16() { return fused_instance<LateDecode>("decode_16, late stores"); }
FusedInstance fused_prefill_128() {
  return fused_instance<LatePrefill>("prefill_128, late stores");
}

void set_late_stores(int device, unsigned rank, unsigned long long ns) {
  const LateStores value{rank, ns};
  int previous = 0;
  cudaError_t error = cudaGetDevice(&previous);
  if (error == cudaSuccess) error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaMemcpyToSymbol(late_stores, &value, sizeof(value));
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaSetDevice(previous);
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace megamoe
