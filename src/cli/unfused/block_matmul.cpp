#include "cli/unfused/block_matmul.hpp"

#include <fmt/format.h>

#include "cli/unfused/library_file.hpp"

namespace megamoe::cli::unfused {
namespace {

/// The first with block scales.
constexpr std::size_t kFirstVersion = 120900;

CublasLtLibrary load_cublaslt() {
  const LibraryFile file("MEGAMOE_CUBLASLT", {"libcublasLt.so.13"});
  CublasLtLibrary library{};
  file.find("cublasLtGetVersion", library.get_version);
  file.find("cublasLtGetStatusString", library.status_string);
  file.find("cublasLtCreate", library.create);
  file.find("cublasLtDestroy", library.destroy);
  file.find("cublasLtMatmul", library.matmul);
  file.find("cublasLtMatmulAlgoGetHeuristic", library.get_heuristic);
  file.find("cublasLtMatmulDescCreate", library.desc_create);
  file.find("cublasLtMatmulDescDestroy", library.desc_destroy);
  file.find("cublasLtMatmulDescSetAttribute", library.desc_set);
  file.find("cublasLtMatrixLayoutCreate", library.layout_create);
  file.find("cublasLtMatrixLayoutDestroy", library.layout_destroy);
  file.find("cublasLtMatmulPreferenceCreate", library.preference_create);
  file.find("cublasLtMatmulPreferenceDestroy", library.preference_destroy);
  file.find("cublasLtMatmulPreferenceSetAttribute", library.preference_set);
  if (library.get_version() < kFirstVersion) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} is cuBLASLt {}, block scales need {}", file.name(),
                            library.get_version(), kFirstVersion));
  }
  return library;
}

void check_status(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::system,
              fmt::format("{}: {} (cuBLAS status {})", what, cublas_lt().status_string(status),
                          static_cast<int>(status)));
}

std::string shape_text(const BlockProduct& p) {
  return fmt::format("the product of {} rows with {} x {} weights into {}", p.rows, p.cols, p.depth,
                     p.bf16 ? "BF16" : "FP32");
}

/// A matrix layout, column-major as the library wants them: `rows` contiguous elements per column.
class Layout {
 public:
  Layout(cudaDataType type, int rows, int cols) {
    check_status(cublas_lt().layout_create(&layout_, type, static_cast<std::uint64_t>(rows),
                                           static_cast<std::uint64_t>(cols), rows),
                 "cublasLtMatrixLayoutCreate");
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublas_lt().layout_destroy(layout_); }
  [[nodiscard]] cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// The operation: FP32 sums, block scales on both sides.
class Operation {
 public:
  Operation() {
    check_status(cublas_lt().desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() { cublas_lt().desc_destroy(desc_); }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_status(cublas_lt().desc_set(desc_, attribute, &value, sizeof value),
                 fmt::format("matmul attribute {}", static_cast<int>(attribute)));
  }
  /// Rows of W are the library's A, transposed; rows of X its B: so D comes out row-major.
  void describe(const BlockProduct& p) {
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    point_to(p);
  }
  void point_to(const BlockProduct& p) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.w_scales));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(p.x_scales));
  }
  [[nodiscard]] cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  cublasLtMatmulDesc_t desc_ = nullptr;
};

class Preference {
 public:
  Preference() {
    check_status(cublas_lt().preference_create(&preference_), "cublasLtMatmulPreferenceCreate");
    const std::size_t bytes = BlockMatmul::kWorkspaceBytes;
    check_status(cublas_lt().preference_set(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &bytes, sizeof bytes),
                 "cublasLtMatmulPreferenceSetAttribute");
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { cublas_lt().preference_destroy(preference_); }
  [[nodiscard]] cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace

const CublasLtLibrary& cublas_lt() {
  static const CublasLtLibrary kLibrary = load_cublaslt();
  return kLibrary;
}

std::string cublas_lt_note() {
  const std::size_t v = cublas_lt().get_version();
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

/// What all products of one shape share.
struct BlockMatmul::Shape {
  explicit Shape(const BlockProduct& p)
      : w(CUDA_R_8F_E4M3, p.depth, p.cols),
        x(CUDA_R_8F_E4M3, p.depth, p.rows),
        d(p.bf16 ? CUDA_R_16BF : CUDA_R_32F, p.cols, p.rows) {
    operation.describe(p);
  }
  Operation operation;
  Layout w, x, d;
  cublasLtMatmulAlgo_t algorithm{};
};

BlockMatmul::BlockMatmul() { check_status(cublas_lt().create(&handle_), "cublasLtCreate"); }

BlockMatmul::~BlockMatmul() { cublas_lt().destroy(handle_); }

BlockMatmul::Shape& BlockMatmul::shape_of(const BlockProduct& p) {
  std::unique_ptr<Shape>& shape = shapes_[{p.rows, p.cols, p.depth, p.bf16}];
  if (shape) return *shape;
  auto made = std::make_unique<Shape>(p);
  const Preference preference;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const Shape& s = *made;
  check_status(
      cublas_lt().get_heuristic(handle_, s.operation.get(), s.w.get(), s.x.get(), s.d.get(),
                                s.d.get(), preference.get(), 1, &result, &found),
      "an algorithm for " + shape_text(p));
  if (found == 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} has no algorithm for {}", cublas_lt_note(), shape_text(p)));
  }
  check_status(result.state, "an algorithm for " + shape_text(p));
  made->algorithm = result.algo;
  shape = std::move(made);
  return *shape;
}

void BlockMatmul::run(const BlockProduct& p, std::byte* workspace, cudaStream_t stream) {
  Shape& shape = shape_of(p);
  shape.operation.point_to(p);
  const float one = 1.0F, zero = 0.0F;
  check_status(cublas_lt().matmul(handle_, shape.operation.get(), &one, p.w, shape.w.get(), p.x,
                                  shape.x.get(), &zero, p.d, shape.d.get(), p.d, shape.d.get(),
                                  &shape.algorithm, workspace, kWorkspaceBytes, stream),
               shape_text(p));
}

}  // namespace megamoe::cli::unfused
