#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "host/checkpoint/checkpoint_files.hpp"
#include "host/checkpoint/tensor_names.hpp"

namespace megamoe {

/// Number formats in which a checkpoint holds a matrix.
enum class StoredFormat : std::uint8_t {
  bf16,           ///< BF16 [rows, cols]
  fp8_block_128,  ///< e4m3 [rows, cols], scales [ceil(rows / 128), ceil(cols / 128)]
  mxfp4,          ///< e2m1 [rows, cols / 2], low nibble first, UE8M0 [rows, cols / 32]
};
const char* name(StoredFormat format);

/// A matrix [rows, cols] where the checkpoint has it: rows of `codes` are code_stride bytes apart,
/// rows of scales scale_stride bytes. Nothing is aligned.
struct MatrixSource {
  StoredFormat format = StoredFormat::bf16;
  std::string where = {};  ///< file and tensor, for messages
  int rows = 0;
  int cols = 0;
  const std::byte* codes = nullptr;
  std::size_t code_stride = 0;
  const std::byte* scales = nullptr;  ///< null for bf16
  std::size_t scale_stride = 0;
  DType scale_dtype = DType::f32;

  /// Bytes of one row's codes.
  [[nodiscard]] std::size_t row_bytes() const;
  /// Rows and columns [row, row + num_rows) x [col, col + num_cols). Throws Error(unsupported) when
  /// the cut would go through a block that shares a scale.
  [[nodiscard]] MatrixSource slice(int row, int num_rows, int col, int num_cols) const;
};

/// One bias vector, `stride` bytes between its elements.
struct BiasSource {
  const std::byte* values = nullptr;  ///< null: there is none
  std::size_t stride = 0;
  int count = 0;
  DType dtype = DType::bf16;
  [[nodiscard]] float at(int index) const;
};

/// All that belongs to one expert.
struct ExpertSource {
  MatrixSource gate = {}, up = {}, down = {};
  BiasSource gate_bias = {}, up_bias = {}, down_bias = {};
};

/// FP32 value of a scale or bias of type F32, BF16, F8_E8M0 or U8 (the same) at `address`.
float load_float(const std::byte* address, DType dtype);

/// Finds one matrix by the part of its name before the suffix and checks dtypes and shapes of codes
/// and scales. Throws Error(invalid_file).
MatrixSource find_matrix(Checkpoint& checkpoint, const FamilyRow& row, const std::string& base,
                         int rows, int cols);

/// Finds expert `expert` of a layer, each matrix with the model's own sizes.
ExpertSource find_expert(Checkpoint& checkpoint, const FamilyRow& row, const std::string& prefix,
                         int layer, int expert, int num_experts, int hidden, int intermediate);

/// Finds shared expert `index` of `num_shared`: a slice of matrices that hold all of them, since
/// gated MLPs side by side along the intermediate size are one such MLP.
ExpertSource find_shared_expert(Checkpoint& checkpoint, const FamilyRow& row,
                                const std::string& prefix, int layer, int index, int num_shared,
                                int hidden, int intermediate);

/// What stands before the family's names in this checkpoint, or nothing when the layer has no
/// experts.
std::optional<std::string> find_prefix(const Checkpoint& checkpoint, const FamilyRow& row,
                                       int layer);

}  // namespace megamoe
