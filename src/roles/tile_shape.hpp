#pragma once

#include <cstdint>

#include "config/kernel_config.hpp"
#include "numerics/hd.hpp"

// What the loader, the main loops and the host agree on about an FP8 tile: extents, bytes, and
// where each piece of a stage lies in shared memory. Plain values; compiles on the host.

namespace megamoe {

/// A tile is kTokens rows of one block times kWeightRows rows of one expert matrix: 128
/// intermediate channels of L1 (gate and up rows interleaved by 8) or 256 hidden channels of L2. A
/// stage brings kBlocksPerStage blocks of 128 along K of both operands.
template <Family kFamilyValue, int kTokensValue, int kWarpgroupsValue, int kBlocksPerStageValue>
struct TileShape {
  static constexpr Family kFamily = kFamilyValue;
  static constexpr int kTokens = kTokensValue;
  static constexpr int kWarpgroups = kWarpgroupsValue;  ///< consumers
  static constexpr int kBlocksPerStage = kBlocksPerStageValue;
  static constexpr int kWeightRows = 256;
  static constexpr int kConsumerThreads = 128 * kWarpgroups;
  /// One more warpgroup schedules, loads, pulls and publishes.
  static constexpr int kThreads = kConsumerThreads + 128;

  static constexpr int kWeightBlockBytes = kWeightRows * kGranule;
  static constexpr int kActBlockBytes = kTokens * kGranule;
  static constexpr int kActScaleBytes = kTokens * 4;
  static constexpr int kWeightBytes = kBlocksPerStage * kWeightBlockBytes;
  static constexpr int kActBytes = kBlocksPerStage * kActBlockBytes;
  /// Scales of the tokens, then two scales of the weights per block, then a TileInfo.
  static constexpr int kWeightScaleOffset = kBlocksPerStage * kActScaleBytes;
  static constexpr int kInfoOffset = (kWeightScaleOffset + kBlocksPerStage * 8 + 15) / 16 * 16;
  static constexpr int kAuxBytes = (kInfoOffset + 16 + 127) / 128 * 128;
  static constexpr int kStageBytes = kWeightBytes + kActBytes + kAuxBytes;

  /// Registers per thread after the split by setmaxnreg; their sum is what the launch grants.
  static constexpr int kServiceRegisters =
      kWarpgroups == 4 ? 32 : (kFamily == Family::prefill ? 72 : 152);
  static constexpr int kConsumerRegisters =
      kWarpgroups == 4 ? 112 : (kFamily == Family::prefill ? 216 : 176);
};

/// Weights on the instruction's M, tokens on its N. 64 KB of weights per stage while they fit.
template <int kTokens, int kWarpgroups>
using DecodeShape = TileShape<Family::decode, kTokens, kWarpgroups, kTokens <= 32 ? 2 : 1>;

/// Tokens on M, one 64-row warpgroup each half; weights on N.
using PrefillShape = TileShape<Family::prefill, 128, 2, 1>;

/// Where a ring of kStages stages lies, in bytes from its 1024-aligned base.
template <class Shape, int kStagesValue>
struct RingLayout {
  static constexpr int kStages = kStagesValue;
  static constexpr int kWeights = 0;
  static constexpr int kActs = kWeights + kStages * Shape::kWeightBytes;
  static constexpr int kAux = kActs + kStages * Shape::kActBytes;
  static constexpr int kBarriers = kAux + kStages * Shape::kAuxBytes;  ///< full[], then empty[]
  static constexpr int kClosed = kBarriers + kStages * 16;             ///< a barrier too
  static constexpr int kBytes = (kClosed + 8 + 127) / 128 * 128;
};

/// The most stages that fit into `bytes` of shared memory.
template <class Shape>
constexpr int stages_in(int bytes) {
  return (bytes - 128) / (Shape::kStageBytes + 16);
}

/// Shared memory that a CTA of sm_90 may have.
inline constexpr int kSharedBytes = 232448;

/// What consumers need to know of a tile; it travels with the tile's first stage, so that they need
/// no knowledge of the schedule. Written by the loader before it arrives on that stage's full
/// barrier, read by the consumers after it; overwritten when the stage is filled for a later tile.
struct alignas(16) TileInfo {
  std::uint16_t flags;     ///< kTileEnd, kTileL2
  std::uint16_t k_blocks;  ///< K / 128
  std::int32_t block;      ///< of the pool or act ring, as the epilogue understands it
  std::int32_t column;     ///< weight row / 256
  std::int32_t rows;       ///< valid rows of the block, 0 .. kTokens
};
inline constexpr std::uint16_t kTileEnd = 1;  ///< no tile: consumers leave
inline constexpr std::uint16_t kTileL2 = 2;   ///< tile of the second matrix
MEGAMOE_HD constexpr TileInfo end_of_tiles() {
  return {.flags = kTileEnd, .k_blocks = 0, .block = 0, .column = 0, .rows = 0};
}

}  // namespace megamoe
