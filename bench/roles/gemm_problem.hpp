#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/roles/bench_cuda.hpp"
#include "bench/roles/gemm_role.hpp"

// One GEMM stage's operands on the device and its check against a reference in double on the host.

namespace megamoe::bench {

struct GemmProblem {
  bool second_matrix;
  int hidden, intermediate;
  int tokens;             ///< rows per block
  std::vector<int> rows;  ///< valid rows of each expert
  int weight_sets = 1;    ///< copies of the weights with different contents, to be used in turn
  float clamp = 10.0F;

  [[nodiscard]] int experts() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] int k() const { return second_matrix ? intermediate : hidden; }
  [[nodiscard]] int weight_rows() const { return second_matrix ? hidden : 2 * intermediate; }
  [[nodiscard]] int outputs() const { return second_matrix ? hidden : intermediate; }
  [[nodiscard]] std::string name() const;
};

/// How the device's results compare with the reference.
struct GemmCheck {
  double diff = 0;           ///< 1 - 2<a,b>/(|a|^2+|b|^2) of the real values
  double worst_row = 0;      ///< largest relative L2 error of a row's group of 128 channels
  double row_bound = 0;      ///< what worst_row may be
  double flipped_codes = 0;  ///< L1: share of codes that differ
  double worst_code = 0;     ///< L1: by how much a code is off beyond one step of e4m3, over 448
  double worst_scale = 0;    ///< L1: largest relative error of a scale
  long stray_bytes = 0;      ///< bytes written outside the valid rows
  long groups = 0;           ///< groups of 128 channels compared
  [[nodiscard]] bool good() const;
};

class GemmData {
 public:
  explicit GemmData(const GemmProblem& problem);

  /// Starts one launch of `instance` with the given weight set on `num_ctas` CTAs.
  void launch(const GemmInstance& instance, int weight_set, int num_ctas, cudaStream_t stream);
  /// Poisons the outputs, launches, and compares: every group, or `samples` random ones. Throws
  /// when a role gave up.
  GemmCheck check(const GemmInstance& instance, int num_ctas, int samples);
  /// True when a second launch gives the same bytes.
  bool repeats(const GemmInstance& instance, int num_ctas);

  /// True when a launch on one CTA in which `lost` stops ends, and every waiting thread says so.
  bool ends_without(Lost lost, const GemmInstance& instance);
  /// SM clock of the last launch in MHz, mean over its CTAs.
  [[nodiscard]] double last_clock_mhz(int num_ctas) const;
  [[nodiscard]] double weight_bytes() const;
  [[nodiscard]] double flops() const;

 private:
  struct Outputs {
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    std::vector<std::uint16_t> rows;
  };
  Outputs run(const GemmInstance& instance, int num_ctas);
  void check_group(const Outputs& out, int block, int row, int group, GemmCheck& check,
                   double (&sums)[3]) const;
  [[nodiscard]] std::vector<double> reference_group(int block, int row, int group) const;
  [[nodiscard]] double dot(int block, int row, int expert, int weight_row, int scale_row) const;
  [[nodiscard]] long stray_bytes(const Outputs& out) const;

  GemmProblem problem_;
  GemmParams params_{};
  std::vector<int> block_rows_;
  std::vector<std::uint8_t> table_;
  std::vector<float> values_;  ///< of the table's codes
  DeviceArray<int> device_block_rows_;
  std::vector<DeviceArray<std::uint8_t>> weights_;
  DeviceArray<std::uint8_t> acts_, act_codes_;
  DeviceArray<float> weight_scales_, act_scales_, act_scales_out_;
  DeviceArray<std::uint16_t> rows_out_;
  DeviceArray<unsigned> faults_;
  DeviceArray<std::uint64_t> clocks_;
};

}  // namespace megamoe::bench
