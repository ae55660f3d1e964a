#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/models.hpp"
#include "megamoe/problem.hpp"

// A forward declaration keeps the large header of the parser out of most files.
namespace CLI {  // NOLINT(readability-identifier-naming): the parser's name
class App;
}  // namespace CLI

namespace megamoe::cli {

/// The flags that describe a problem, as typed.
struct ProblemFlags {
  std::optional<std::string> model, hidden, intermediate, experts, top_k, shared_experts;
  std::optional<std::string> precision, activation, ranks, tokens, capacity;
};

/// What a verb wants where a flag is not given, and what its --tokens means.
struct ProblemDefaults {
  int ranks = 1;
  std::string tokens = "8";
  std::string tokens_help;
};

void add_problem_flags(CLI::App& app, ProblemFlags& flags, const ProblemDefaults& defaults);

/// A problem made of flags.
struct Shape {
  Problem problem;                ///< valid
  std::optional<ModelRow> model;  ///< the --model's or the checkpoint's
  int stated_hidden = 0;          ///< before padding to a multiple of 128
  int stated_intermediate = 0;
  std::vector<int> tokens;         ///< as listed, at least one
  std::vector<std::string> notes;  ///< what a reader should know, one line each
};

/// Reads and checks the flags, with the dimensions of `model` in place of a --model if it is given.
/// Dimensions of a model that are not multiples of 128 are padded and noted; those given as flags
/// are refused. Capacity: --capacity, else the most tokens listed.
/// Throws Error(invalid_argument) naming the value.
Shape resolve_shape(const ProblemFlags& flags, const ProblemDefaults& defaults,
                    const std::optional<ModelRow>& model = std::nullopt);

/// The precision that --precision names.
Precision parse_precision(const std::string& text);
/// The activation that --activation names, with the constants of the models that use it.
Activation parse_activation(const std::string& text);

/// One token count per rank, from a list of one (the same on all ranks) or of one per rank.
std::vector<int> tokens_per_rank(const Shape& shape);

}  // namespace megamoe::cli
