#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/io.hpp"
#include "cli/problem_flags.hpp"
#include "config/roofline.hpp"
#include "ref/random_case.hpp"

// A forward declaration keeps the large header of the parser out of most files.
namespace CLI {  // NOLINT(readability-identifier-naming): the parser's name
class App;
}  // namespace CLI

namespace megamoe::cli {

/// The flags of `bench`, as typed.
struct BenchFlags {
  ProblemFlags problem;
  std::optional<std::string> routing, seed, seeds, repeat, weight_sets, num_sms, reserved_sms;
  std::optional<std::string> block_rows, gpu, chart, deadline;
  bool virtual_ranks = false;
  bool flush = false;
  bool json = false;
  bool unfused = false;
};

/// What is timed and how; all values checked.
struct BenchRequest {
  Shape shape;  ///< shape.tokens: a row for each count, the same on all ranks
  ref::Routing routing;
  bool one_sender = false;           ///< rank 0 brings all the tokens
  std::vector<std::uint64_t> seeds;  ///< of the routing: call i takes seeds[i % size]
  int repeat = 0;                    ///< timed calls of each kind and row
  int weight_sets = 0;               ///< call i takes set i % weight_sets
  bool flush = false;                ///< L2 is read through before each call
  bool virtual_ranks = false;
  int num_sms = 0;
  std::optional<int> reserved_sms;  ///< nothing: the library's default
  int block_rows = 0;               ///< 0: chosen
  const Gpu* gpu = nullptr;         ///< whose rates the bound takes; null: that of the machine
  std::chrono::nanoseconds deadline{};
  std::optional<std::string> chart;  ///< file for the SVG
  bool json = false;
  bool unfused = false;  ///< the unfused chain is timed too
  std::string command;   ///< as it was typed

  [[nodiscard]] const Problem& problem() const { return shape.problem; }
  /// The tokens of every rank in a row of `tokens`.
  [[nodiscard]] std::vector<int> tokens_of_ranks(int tokens) const;
  /// As --routing spells it.
  [[nodiscard]] std::string routing_name() const;
};

void add_bench_flags(CLI::App& app, BenchFlags& flags);

/// Checks what can be checked without a GPU. Throws Error naming the value.
BenchRequest resolve_bench(const BenchFlags& flags, const Arguments& arguments);

}  // namespace megamoe::cli
