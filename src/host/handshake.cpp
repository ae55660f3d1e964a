#include "host/handshake.hpp"

#include <charconv>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "layout/local_layout.hpp"
#include "layout/map.hpp"
#include "layout/symmetric_layout.hpp"

namespace megamoe {
namespace {

/// FNV-1a, 64 bits.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// One "field = value" line per thing that ranks must have in common.
std::string describe(const Problem& p) {
  const Activation& a = p.activation;
  // Sizes that make no sense have no layout.
  const std::uint64_t layout_hash = why_invalid(p).empty() ? hash_of(layout_map(p)) : 0;
  return fmt::format(
      "library version = {}\nlayout version = {}\nranks = {}\nexperts = {}\ntop_k = {}\nhidden = "
      "{}\nintermediate = {}\n"
      "max_tokens_per_rank = {}\nprecision = {}\nshared_experts = {}\nactivation = {}\nactivation "
      "clamp = {}\n"
      "activation alpha = {}\nactivation up_bias = {}\nactivation beta = {}\nactivation "
      "linear_beta = {}\nlayout hash = {:016x}\n",
      version(), kLayoutVersion, p.ranks, p.experts, p.top_k, p.hidden, p.intermediate,
      p.max_tokens_per_rank, name(p.precision), p.shared_experts, name(a.kind), a.clamp, a.alpha,
      a.up_bias, a.beta, a.linear_beta, layout_hash);
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

/// A rank's trouble as text: the code's number, a space, the reason; empty without.
std::string to_text(const Trouble& trouble) {
  if (!trouble) return {};
  return fmt::format("{} {}", static_cast<int>(trouble->code()), trouble->what());
}

struct Reported {
  ErrorCode code = ErrorCode::system;
  std::string reason;
};

std::optional<Reported> from_text(const std::string& text) {
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return {};
  int code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + space, code);
  const bool known = error == std::errc() && end == text.data() + space && code >= 0 &&
                     code <= static_cast<int>(ErrorCode::system);
  return Reported{known ? static_cast<ErrorCode>(code) : ErrorCode::system, text.substr(space + 1)};
}

/// What the ranks' texts hold of trouble: the first one's code, all reasons with their ranks.
std::optional<Reported> troubles_of(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int>> reasons;
  std::optional<Reported> all;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const auto reported = from_text(texts[r]);
    if (!reported) continue;
    if (!all) all = Reported{reported->code, {}};
    reasons[reported->reason].push_back(static_cast<int>(r));
  }
  if (!all) return {};
  if (reasons.begin()->second.size() == texts.size()) {
    all->reason = reasons.begin()->first;
    return all;
  }
  for (const auto& [reason, who] : reasons)
    all->reason +=
        fmt::format("{}{}: {}", all->reason.empty() ? "" : "; ", ranks_text(who), reason);
  return all;
}

/// Fields that differ, with values and ranks; empty if none does.
std::string differences_of(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> ranks;
  std::size_t fields = 0;
  for (const std::string& text : texts) {
    ranks.push_back(lines_of(text));
    fields = std::max(fields, ranks.back().size());
  }
  std::string reasons;
  for (std::size_t i = 0; i < fields; ++i) {
    const std::string reason = difference(ranks, i);
    if (!reason.empty()) reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return reasons.empty() ? "" : "ranks disagree: " + reasons;
}

}  // namespace

void refuse_together(const AllGather& gather, const Trouble& own) {
  if (const auto trouble = troubles_of(gather(to_text(own))))
    throw Error(trouble->code, trouble->reason);
}

void agree_on(const AllGather& gather, const std::string& lines) {
  const std::string differences = differences_of(gather(lines));
  if (!differences.empty()) throw Error(ErrorCode::disagreement, differences);
}

void agree(SymmetricMemory& memory, const Problem& problem, const Trouble& own) {
  std::vector<std::string> lines, troubles;
  for (const std::string& text : memory.all_gather(describe(problem) + '\0' + to_text(own))) {
    const std::size_t end = text.find('\0');
    lines.push_back(text.substr(0, end));
    troubles.push_back(end == std::string::npos ? "" : text.substr(end + 1));
  }
  const std::string differences = differences_of(lines);
  const auto trouble = troubles_of(troubles);
  if (!differences.empty()) {
    throw Error(ErrorCode::disagreement,
                trouble ? differences + "; " + trouble->reason : differences);
  }
  if (trouble) throw Error(trouble->code, trouble->reason);
}

}  // namespace megamoe
