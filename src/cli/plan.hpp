#pragma once

#include <string>
#include <vector>

#include "cli/problem_flags.hpp"
#include "config/kernel_config.hpp"
#include "config/roofline.hpp"

namespace megamoe::cli {

/// What one call with a given number of tokens per rank costs.
struct PlanRow {
  int tokens = 0;
  LayerWork work;
  KernelConfig config;
  Bound practical;  ///< one copy per (token, expert)
  Bound peak;
  Bound dedup;  ///< practical rates, one copy per (token, rank)
};

/// A plan: the problem's memory and, for each token count, its work and bounds.
struct Plan {
  Shape shape;
  const Gpu* gpu = nullptr;
  std::size_t symmetric_bytes = 0;   ///< per rank
  std::size_t local_bytes = 0;       ///< per rank
  double resident_weight_bytes = 0;  ///< one layer's weights and scales, per rank
  std::vector<PlanRow> rows;
};

/// The GPU type that --gpu names. Throws Error naming near ones.
const Gpu& parse_gpu(const std::string& text);

/// Throws Error(unsupported) if the GPU cannot run the precision. mxfp4 on Blackwell becomes
/// mxfp8_mxfp4.
Plan make_plan(Shape shape, const Gpu& gpu);

/// As product documents promise it: one object, or a list when several token counts were asked.
std::string plan_json(const Plan& plan);
/// For people.
std::string plan_text(const Plan& plan);

}  // namespace megamoe::cli
