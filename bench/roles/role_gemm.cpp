// One GEMM role alone (loader, main loop, epilogue), with all inputs ready.
//
// usage: role_gemm decode|prefill check|time
// check compares every instance with a reference in double; exit status 1 when one is off.
// time prints medians: microseconds and share of 4.27 TB/s (decode), TFLOP/s (prefill).

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include <fmt/format.h>

#include "bench/roles/gemm_problem.hpp"

namespace megamoe::bench {
namespace {

constexpr double kPeakBytesPerSecond = 4.27e12;  // a device-to-device copy, read plus written
constexpr int kExperts = 32;

struct LayerShape {
  const char* name;
  int hidden, intermediate;
};
constexpr LayerShape kLayers[] = {{"Flash", 4096, 2048}, {"V3", 7168, 2048}};

int num_sms() {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "SM count");
  return count;
}

bool report(const GemmInstance& instance, const GemmProblem& problem, const GemmCheck& result,
            bool repeats) {
  const bool good = result.good() && repeats;
  fmt::print(
      "{:16s} {:14s} diff {:8.1e} row {:7.1e} flips {:6.4f} code {:7.1e} scale {:7.1e} stray {} "
      "groups {:6d} repeat {} {}\n",
      instance.name, problem.name(), result.diff, result.worst_row, result.flipped_codes,
      result.worst_code, result.worst_scale, result.stray_bytes, result.groups,
      repeats ? "same" : "DIFFERS", good ? "ok" : "WRONG");
  std::fflush(stdout);
  return good;
}

/// Row counts around an instance's block: none, one, part, whole, whole and a bit (prefill).
std::vector<int> odd_rows(const GemmInstance& instance) {
  const int tokens = instance.tokens;
  if (instance.decode) return {tokens, 1, 0, tokens - 3};
  return {tokens + 2, 1, 0, tokens, tokens / 2 + 5};
}

bool check_instances(const std::vector<GemmInstance>& instances) {
  struct Shape {
    int hidden, intermediate;
  };
  bool all = true;
  for (const GemmInstance& instance : instances) {
    for (const Shape shape : {Shape{640, 1408}, Shape{128, 128}, Shape{1024, 384}}) {
      for (const bool second : {false, true}) {
        GemmProblem problem{.second_matrix = second,
                            .hidden = shape.hidden,
                            .intermediate = shape.intermediate,
                            .tokens = instance.tokens,
                            .rows = odd_rows(instance)};
        problem.clamp = shape.hidden == 128 ? 0.75F : 10.0F;
        GemmData data(problem);
        all =
            report(instance, problem, data.check(instance, 7, 0), data.repeats(instance, 5)) && all;
        if (shape.hidden != 1024) continue;
        for (const Lost lost : {Lost::loader, Lost::consumers}) {
          if (data.ends_without(lost, instance)) continue;
          fmt::print("{} {}: a lost {} was not noticed\n", instance.name, problem.name(),
                     lost == Lost::loader ? "loader" : "consumer");
          all = false;
        }
      }
    }
  }
  return all;
}

bool time_decode(const std::vector<GemmInstance>& instances) {
  bool all = true;
  for (const LayerShape& layer : kLayers) {
    for (const bool second : {false, true}) {
      for (const GemmInstance& instance : instances) {
        GemmProblem problem{.second_matrix = second,
                            .hidden = layer.hidden,
                            .intermediate = layer.intermediate,
                            .tokens = instance.tokens,
                            .rows = std::vector<int>(kExperts, instance.tokens),
                            .weight_sets = 2};
        GemmData data(problem);
        all = report(instance, problem, data.check(instance, num_sms(), 48), true) && all;
        const double us = time_launches(
            [&](cudaStream_t stream, int i) { data.launch(instance, i % 2, num_sms(), stream); }, 8,
            7);
        fmt::print("TIME {:5s} {:14s} {:16s} stages {} t={:2d}: {:7.1f} us {:5.1f} %\n", layer.name,
                   problem.name(), instance.name, instance.stages, instance.tokens, us,
                   100 * data.weight_bytes() / (us * 1e-6) / kPeakBytesPerSecond);
        std::fflush(stdout);
      }
    }
  }
  return all;
}

bool time_prefill(const std::vector<GemmInstance>& instances) {
  bool all = true;
  for (const int rows : {1536, 384}) {
    for (const LayerShape& layer : kLayers) {
      for (const bool second : {false, true}) {
        GemmProblem problem{.second_matrix = second,
                            .hidden = layer.hidden,
                            .intermediate = layer.intermediate,
                            .tokens = 128,
                            .rows = std::vector<int>(kExperts, rows)};
        GemmData data(problem);
        for (const GemmInstance& instance : instances) {
          all = report(instance, problem, data.check(instance, num_sms(), 48), true) && all;
          // about 60 ms of load before and while timing, so that the clock has settled
          const int per_graph = std::max(4, static_cast<int>(30e-3 * 1.1e15 / data.flops()));
          const double us = time_launches(
              [&](cudaStream_t stream, int) { data.launch(instance, 0, num_sms(), stream); },
              per_graph, 3, 2);
          const double mhz = data.last_clock_mhz(num_sms());
          const double tensor_peak = 8192e6 * mhz * num_sms();  // e4m3 operations per second
          fmt::print(
              "TIME {:5s} {:14s} {:16s} m={:4d}: {:8.1f} us {:6.0f} TFLOP/s at {:4.0f} MHz, "
              "{:2.0f} % "
              "of its peak\n",
              layer.name, problem.name(), instance.name, rows, us, data.flops() / us * 1e-6, mhz,
              100 * data.flops() / (us * 1e-6) / tensor_peak);
          std::fflush(stdout);
        }
      }
    }
  }
  return all;
}

int run(int argc, char** argv) {
  const auto is = [&](int i, const char* word) {
    return argc > i && std::strcmp(argv[i], word) == 0;
  };
  if (argc != 3 || !(is(1, "decode") || is(1, "prefill")) || !(is(2, "check") || is(2, "time"))) {
    fmt::print(stderr, "usage: role_gemm decode|prefill check|time\n");
    return 2;
  }
  const bool decode = is(1, "decode");
  const std::vector<GemmInstance> instances = decode ? decode_instances() : prefill_instances();
  const bool good = is(2, "check") ? check_instances(instances)
                    : decode       ? time_decode(instances)
                                   : time_prefill(instances);
  fmt::print("{}\n", good ? "all checks passed" : "A CHECK FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace megamoe::bench

int main(int argc, char** argv) {
  try {
    return megamoe::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "role_gemm: {}\n", error.what());
    return 1;
  }
}
