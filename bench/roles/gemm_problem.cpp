#include "bench/roles/gemm_problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "bench/roles/random_data.hpp"
#include "host/tensor_maps.hpp"
#include "megamoe/weights.hpp"

namespace megamoe::bench {
namespace {

constexpr std::uint64_t kWeightSeed = 11, kActSeed = 22, kWeightScaleSeed = 33, kActScaleSeed = 44;
constexpr std::uint8_t kPoison = 0xFF;
constexpr int kMaxCtas = 1024;
constexpr std::uint64_t kDeadlineNs = 2'000'000'000;

/// The distance from a code's value to the next larger magnitude's.
double e4m3_step(double value) {
  const double magnitude = std::max(std::fabs(value), 0x1p-6);
  return std::exp2(std::floor(std::log2(magnitude)) - 3);
}

}  // namespace

std::string GemmProblem::name() const {
  return fmt::format("{} {}x{}", second_matrix ? "L2" : "L1", weight_rows(), k());
}

bool GemmCheck::good() const {
  // the bounds of the whole layer's output; 2 % of flipped codes is what the tensor core's
  // accumulation error of 2e-4 can turn near the midpoints of 2^-4 wide steps, with room
  return groups > 0 && diff < 3e-5 && worst_row < row_bound && flipped_codes < 2e-2 &&
         worst_code < 2e-3 && worst_scale < 2e-3 && stray_bytes == 0;
}

GemmData::GemmData(const GemmProblem& problem) : problem_(problem), table_(normal_codes()) {
  for (const std::uint8_t code : table_) values_.push_back(e4m3_value(code));
  int per_expert = 1;
  for (const int rows : problem.rows) {
    per_expert = std::max(per_expert, (rows + problem.tokens - 1) / problem.tokens);
  }
  for (const int rows : problem.rows) {
    for (int b = 0; b < per_expert; ++b) {
      block_rows_.push_back(std::clamp(rows - b * problem.tokens, 0, problem.tokens));
    }
  }
  const auto blocks = block_rows_.size(), tokens = static_cast<std::size_t>(problem.tokens);
  const auto k = static_cast<std::size_t>(problem.k());
  const auto weight_rows = static_cast<std::size_t>(problem.weight_rows()) * problem.rows.size();
  device_block_rows_ = DeviceArray<int>(block_rows_);
  for (int set = 0; set < problem.weight_sets; ++set) {
    weights_.emplace_back(weight_rows * k);
    fill_codes(weights_.back().get(), weight_rows * k, kWeightSeed + 1000 * set);
  }
  acts_ = DeviceArray<std::uint8_t>(blocks * tokens * k);
  weight_scales_ = DeviceArray<float>(weight_rows / 128 * (k / 128));
  act_scales_ = DeviceArray<float>(blocks * tokens * (k / 128));
  faults_ = DeviceArray<unsigned>(std::size_t{1});
  faults_.fill_bytes(0);
  clocks_ = DeviceArray<std::uint64_t>(std::size_t{2 * kMaxCtas});
  fill_codes(acts_.get(), acts_.size(), kActSeed);
  // so that a sum over K is about normal with deviation 1
  fill_scales(weight_scales_.get(), weight_scales_.size(), kWeightScaleSeed,
              1.0F / (kCodeSigma * std::sqrt(static_cast<float>(k))));
  fill_scales(act_scales_.get(), act_scales_.size(), kActScaleSeed, 1.0F / kCodeSigma);
  const std::size_t outputs = blocks * tokens * static_cast<std::size_t>(problem.outputs());
  if (problem.second_matrix) {
    rows_out_ = DeviceArray<std::uint16_t>(outputs);
  } else {
    act_codes_ = DeviceArray<std::uint8_t>(outputs);
    act_scales_out_ = DeviceArray<float>(outputs / 128);
  }
  params_ = {.second_matrix = problem.second_matrix,
             .experts = problem.experts(),
             .blocks_per_expert = per_expert,
             .hidden = problem.hidden,
             .intermediate = problem.intermediate,
             .block_rows = device_block_rows_.get(),
             .act_scales = act_scales_.get(),
             .weight_scales = weight_scales_.get(),
             .act_codes = reinterpret_cast<std::byte*>(act_codes_.get()),
             .act_scales_out = act_scales_out_.get(),
             .rows_out = reinterpret_cast<std::byte*>(rows_out_.get()),
             .clamp = problem.clamp,
             .deadline_ns = kDeadlineNs,
             .faults = faults_.get(),
             .lost = Lost::nobody,
             .clocks = clocks_.get()};
}

double GemmData::last_clock_mhz(int num_ctas) const {
  const std::vector<std::uint64_t> clocks = clocks_.to_host();
  double mhz = 0;
  for (std::size_t cta = 0; cta < static_cast<std::size_t>(num_ctas); ++cta) {
    mhz += 1e3 * static_cast<double>(clocks[2 * cta]) / static_cast<double>(clocks[2 * cta + 1]);
  }
  return mhz / num_ctas;
}

double GemmData::weight_bytes() const {
  const double values =
      static_cast<double>(problem_.experts()) * problem_.weight_rows() * problem_.k();
  return values * (1 + 4.0 / 16384);
}

double GemmData::flops() const {
  double rows = 0;
  for (const int r : block_rows_) rows += r;
  return 2 * rows * problem_.weight_rows() * problem_.k();
}

void GemmData::launch(const GemmInstance& instance, int weight_set, int num_ctas,
                      cudaStream_t stream) {
  const L2Promotion promotion = instance.decode ? L2Promotion::none : L2Promotion::bytes_256;
  CUtensorMap weights =
      expert_weight_map(weights_[static_cast<std::size_t>(weight_set)].get(), problem_.experts(),
                        problem_.weight_rows(), problem_.k(), 256, promotion);
  CUtensorMap acts = row_map(acts_.get(), static_cast<long>(block_rows_.size()) * problem_.tokens,
                             problem_.k(), problem_.tokens, L2Promotion::bytes_256);
  megamoe::bench::check(
      cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           instance.shared_bytes),
      "shared memory");
  void* arguments[] = {&weights, &acts, &params_};
  megamoe::bench::check(cudaLaunchKernel(instance.kernel, dim3(static_cast<unsigned>(num_ctas)),
                                         dim3(static_cast<unsigned>(instance.threads)), arguments,
                                         static_cast<std::size_t>(instance.shared_bytes), stream),
                        instance.name);
}

GemmData::Outputs GemmData::run(const GemmInstance& instance, int num_ctas) {
  if (problem_.second_matrix) {
    rows_out_.fill_bytes(kPoison);
  } else {
    act_codes_.fill_bytes(kPoison);
    act_scales_out_.fill_bytes(kPoison);
  }
  launch(instance, 0, num_ctas, nullptr);
  megamoe::bench::check(cudaDeviceSynchronize(), instance.name);
  if (const unsigned faults = faults_.to_host()[0]; faults != 0) {
    faults_.fill_bytes(0);
    throw Error(ErrorCode::fault, fmt::format("{} on {}: {} threads passed their deadline",
                                              instance.name, problem_.name(), faults));
  }
  if (problem_.second_matrix) return {.codes = {}, .scales = {}, .rows = rows_out_.to_host()};
  return {.codes = act_codes_.to_host(), .scales = act_scales_out_.to_host(), .rows = {}};
}

bool GemmData::repeats(const GemmInstance& instance, int num_ctas) {
  const Outputs a = run(instance, num_ctas), b = run(instance, num_ctas - 1);
  const auto same = [](const auto& x, const auto& y) {
    return std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
  };
  return same(a.codes, b.codes) && same(a.scales, b.scales) && same(a.rows, b.rows);
}

bool GemmData::ends_without(Lost lost, const GemmInstance& instance) {
  params_.lost = lost;
  params_.deadline_ns = 1'000'000;
  launch(instance, 0, 1, nullptr);
  params_.lost = Lost::nobody;
  params_.deadline_ns = kDeadlineNs;
  megamoe::bench::check(cudaDeviceSynchronize(), instance.name);
  const unsigned faults = faults_.to_host()[0];
  faults_.fill_bytes(0);
  return faults == (lost == Lost::loader ? static_cast<unsigned>(instance.threads) - 128 : 1U);
}

double GemmData::dot(int block, int row, int expert, int weight_row, int scale_row) const {
  const auto k = static_cast<std::uint64_t>(problem_.k()), k_blocks = k / 128;
  const std::uint64_t act = (static_cast<std::uint64_t>(block) * problem_.tokens + row) * k;
  const std::uint64_t weight =
      (static_cast<std::uint64_t>(expert) * problem_.weight_rows() + weight_row) * k;
  const std::uint64_t weight_scale =
      (static_cast<std::uint64_t>(expert) * (problem_.weight_rows() / 128) + scale_row) * k_blocks;
  const float act_base = 1.0F / kCodeSigma;
  const float weight_base = 1.0F / (kCodeSigma * std::sqrt(static_cast<float>(k)));
  double sum = 0;
  for (std::uint64_t b = 0; b < k_blocks; ++b) {
    double part = 0;
    for (std::uint64_t i = b * 128; i < (b + 1) * 128; ++i) {
      part += static_cast<double>(values_[random_word(kActSeed, act + i) % kCodeTableSize]) *
              static_cast<double>(values_[random_word(kWeightSeed, weight + i) % kCodeTableSize]);
    }
    const std::uint64_t act_scale =
        (static_cast<std::uint64_t>(block) * k_blocks + b) * problem_.tokens + row;
    sum += part * static_cast<double>(random_scale(kActScaleSeed, act_scale, act_base)) *
           static_cast<double>(random_scale(kWeightScaleSeed, weight_scale + b, weight_base));
  }
  return sum;
}

std::vector<double> GemmData::reference_group(int block, int row, int group) const {
  const int expert = block / params_.blocks_per_expert, intermediate = problem_.intermediate;
  std::vector<double> values;
  for (int channel = group * 128; channel < group * 128 + 128; ++channel) {
    if (problem_.second_matrix) {
      values.push_back(dot(block, row, expert, channel, channel / 128));
      continue;
    }
    const int gate_row = interleaved_row(channel, intermediate);
    const int up_row = interleaved_row(intermediate + channel, intermediate);
    const double clamp = static_cast<double>(problem_.clamp);
    const double gate = std::min(dot(block, row, expert, gate_row, group), clamp);
    const double up =
        std::clamp(dot(block, row, expert, up_row, intermediate / 128 + group), -clamp, clamp);
    values.push_back(gate / (1 + std::exp(-gate)) * up);
  }
  return values;
}

void GemmData::check_group(const Outputs& out, int block, int row, int group, GemmCheck& check,
                           double (&sums)[3]) const {
  const std::vector<double> wanted = reference_group(block, row, group);
  const auto at = (static_cast<std::size_t>(block) * problem_.tokens + row) *
                      static_cast<std::size_t>(problem_.outputs()) +
                  static_cast<std::size_t>(group) * 128;
  float scale = 0, wanted_scale = 0, inverse = 0;
  if (!problem_.second_matrix) {
    scale = out.scales[(static_cast<std::size_t>(block) * (problem_.outputs() / 128) + group) *
                           problem_.tokens +
                       row];
    float amax = 0x1p-100F;
    for (const double v : wanted) amax = std::max(amax, std::fabs(static_cast<float>(v)));
    wanted_scale = amax / 448.0F;
    inverse = 448.0F / amax;
    check.worst_scale =
        std::max(check.worst_scale,
                 std::fabs(static_cast<double>(scale) / static_cast<double>(wanted_scale) - 1));
  }
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    double got = 0, want = wanted[i];
    if (problem_.second_matrix) {
      got = static_cast<double>(bf16_to_float(out.rows[at + i]));
    } else {
      const std::uint8_t code = out.codes[at + i];
      const std::uint8_t wanted_code = e4m3_code(static_cast<float>(want) * inverse);
      got = static_cast<double>(e4m3_value(code)) * static_cast<double>(scale);
      want = static_cast<double>(e4m3_value(wanted_code)) * static_cast<double>(wanted_scale);
      check.flipped_codes += code != wanted_code;
      const double value = static_cast<double>(e4m3_value(code));
      const double wanted_value = static_cast<double>(e4m3_value(wanted_code));
      const double step = e4m3_step(std::max(std::fabs(value), std::fabs(wanted_value)));
      check.worst_code = std::max(check.worst_code, (std::fabs(value - wanted_value) - step) / 448);
    }
    if (std::isnan(got)) got = 1e30;  // also poison that was never overwritten
    sums[0] += got * want;
    sums[1] += got * got + want * want;
    error += (got - want) * (got - want);
    norm += want * want;
  }
  check.worst_row = std::max(check.worst_row, std::sqrt(error / norm));
  check.groups += 1;
}

long GemmData::stray_bytes(const Outputs& out) const {
  const std::size_t outputs = static_cast<std::size_t>(problem_.outputs());
  const auto tokens = static_cast<std::size_t>(problem_.tokens);
  const std::size_t row_bytes = problem_.second_matrix ? outputs * 2 : outputs;
  const auto* bytes = problem_.second_matrix
                          ? reinterpret_cast<const std::uint8_t*>(out.rows.data())
                          : out.codes.data();
  long stray = 0;
  for (std::size_t block = 0; block < block_rows_.size(); ++block) {
    const std::size_t first =
        (block * tokens + static_cast<std::size_t>(block_rows_[block])) * row_bytes;
    for (std::size_t i = first; i < (block + 1) * tokens * row_bytes; ++i)
      stray += bytes[i] != kPoison;
  }
  return stray;
}

GemmCheck GemmData::check(const GemmInstance& instance, int num_ctas, int samples) {
  const Outputs out = run(instance, num_ctas);
  const int groups = problem_.outputs() / 128;
  struct Unit {
    int block, row, group;
  };
  std::vector<Unit> units;
  for (int block = 0; block < params_.blocks(); ++block) {
    for (int row = 0; row < block_rows_[static_cast<std::size_t>(block)]; ++row) {
      for (int group = 0; group < groups; ++group) units.push_back({block, row, group});
    }
  }
  if (samples != 0) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(samples); ++i) {
      std::swap(units[i], units[i + random_word(99, i) % (units.size() - i)]);
    }
    units.resize(static_cast<std::size_t>(samples));
  }
  GemmCheck total;
  double sums[3] = {0, 0, 0};
  std::mutex mutex;
  std::vector<std::thread> threads;
  const unsigned count = std::max(1U, std::thread::hardware_concurrency());
  for (unsigned t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      GemmCheck part;
      double part_sums[3] = {0, 0, 0};
      for (std::size_t i = t; i < units.size(); i += count) {
        check_group(out, units[i].block, units[i].row, units[i].group, part, part_sums);
      }
      const std::scoped_lock lock(mutex);
      for (int i = 0; i < 3; ++i) sums[i] += part_sums[i];
      total.worst_row = std::max(total.worst_row, part.worst_row);
      total.worst_scale = std::max(total.worst_scale, part.worst_scale);
      total.worst_code = std::max(total.worst_code, part.worst_code);
      total.flipped_codes += part.flipped_codes;
      total.groups += part.groups;
    });
  }
  for (std::thread& thread : threads) thread.join();
  // L2: half a unit of BF16 is 2^-9. L1: one flipped code near the top of the range is off by
  // 32/448 of the group's maximum, which may be 10 times its mean magnitude, out of 128 values.
  total.row_bound = problem_.second_matrix ? 0x1p-8 : 32.0 / 448 * 10 / std::sqrt(128.0);
  total.diff = 1 - 2 * sums[0] / sums[1];
  total.flipped_codes /= static_cast<double>(total.groups) * 128;
  if (samples == 0) total.stray_bytes = stray_bytes(out);
  return total;
}

}  // namespace megamoe::bench
