#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <cublasLt.h>

#include "host/cuda/runtime.hpp"

namespace megamoe::cli::unfused {

/// What is called of cuBLASLt, found at run time.
struct CublasLtLibrary {
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

/// Opens MEGAMOE_CUBLASLT, else libcublasLt.so.13, once. Throws Error(unsupported) saying what is
/// missing, or naming a version without block scales.
const CublasLtLibrary& cublas_lt();

/// "cuBLASLt 13.1.0".
std::string cublas_lt_note();

/// D [rows, cols] = X [rows, depth] W [cols, depth]^T, all row-major: X and W e4m3, FP32 sums.
struct BlockProduct {
  const std::byte* x = nullptr;
  const float* x_scales = nullptr;  ///< [depth / 128][rows], 16-byte aligned
  const std::byte* w = nullptr;
  /// [cols / 128][depth / 128 rounded up to a multiple of 4]
  const float* w_scales = nullptr;
  void* d = nullptr;  ///< FP32 or BF16
  int rows = 0;       ///< a multiple of 4
  int cols = 0;       ///< a multiple of 128
  int depth = 0;      ///< a multiple of 128
  bool bf16 = false;  ///< D is BF16
};

/// Products on one GPU. The first of each shape asks the library's heuristics for an algorithm.
class BlockMatmul {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20U;

  /// Makes a handle of the current device.
  BlockMatmul();
  BlockMatmul(const BlockMatmul&) = delete;
  BlockMatmul& operator=(const BlockMatmul&) = delete;
  ~BlockMatmul();

  /// In stream order; may be captured. `workspace`: kWorkspaceBytes, not used by another stream at
  /// the same time. Throws Error naming the shape when the library has no algorithm or refuses.
  void run(const BlockProduct& product, std::byte* workspace, cudaStream_t stream);

 private:
  struct Shape;
  using Key = std::tuple<int, int, int, bool>;
  Shape& shape_of(const BlockProduct& product);

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Shape>> shapes_;
};

}  // namespace megamoe::cli::unfused
