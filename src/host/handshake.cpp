#include "host/handshake.hpp"

#include <map>
#include <sstream>

#include <fmt/format.h>

#include "layout/local_layout.hpp"
#include "layout/symmetric_layout.hpp"

namespace megamoe {
namespace {

/// One "field = value" line per thing that ranks must have in common.
std::string describe(const Problem& p) {
  const Activation& a = p.activation;
  return fmt::format(
      "library version = {}\nlayout version = {}\nranks = {}\nexperts = {}\ntop_k = {}\nhidden = "
      "{}\nintermediate = {}\n"
      "max_tokens_per_rank = {}\nprecision = {}\nshared_experts = {}\nactivation = {}\nactivation "
      "clamp = {}\n"
      "activation alpha = {}\nactivation up_bias = {}\nactivation beta = {}\nactivation "
      "linear_beta = {}\n",
      version(), kLayoutVersion, p.ranks, p.experts, p.top_k, p.hidden, p.intermediate,
      p.max_tokens_per_rank, name(p.precision), p.shared_experts, name(a.kind), a.clamp, a.alpha,
      a.up_bias, a.beta, a.linear_beta);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// "hidden = 256 (ranks 0, 1), hidden = 128 (rank 2)", or nothing when all ranks have the same line
/// `index`.
std::string difference(const std::vector<std::vector<std::string>>& ranks, std::size_t index) {
  std::map<std::string, std::vector<int>> values;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    values[index < ranks[r].size() ? ranks[r][index] : "nothing"].push_back(static_cast<int>(r));
  }
  if (values.size() == 1) return {};
  std::string text;
  for (const auto& [line, who] : values)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", line, ranks_text(who));
  return text;
}

}  // namespace

void agree(SymmetricMemory& memory, const Problem& problem) {
  std::vector<std::vector<std::string>> ranks;
  std::size_t fields = 0;
  for (const std::string& text : memory.all_gather(describe(problem))) {
    ranks.push_back(lines_of(text));
    fields = std::max(fields, ranks.back().size());
  }
  std::string reasons;
  for (std::size_t i = 0; i < fields; ++i) {
    const std::string reason = difference(ranks, i);
    if (!reason.empty()) reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  if (!reasons.empty()) throw Error(ErrorCode::disagreement, "ranks disagree: " + reasons);
}

}  // namespace megamoe
