#include "sim/word_name.hpp"

#include <cstddef>

namespace megamoe::sim {
namespace {

WordName once(WordKind kind, std::size_t offset, std::size_t word_bytes) {
  return {kind, 0, 0, 0, static_cast<u32>(offset / word_bytes)};
}

WordName header_word(std::size_t offset) {
  switch (offset) {
    case offsetof(LocalHeader, start):
      return once(WordKind::start, 0, 8);
    case offsetof(LocalHeader, ranks_out):
      return once(WordKind::ranks_out, 0, 4);
    case offsetof(LocalHeader, fault_claim):
      return once(WordKind::fault_claim, 0, 4);
    case offsetof(LocalHeader, generation):
      return once(WordKind::generation, 0, 4);
    case offsetof(LocalHeader, bad_id_claim):
      return once(WordKind::bad_id_claim, 0, 4);
    default:
      return {};
  }
}

WordName parity_word(std::size_t offset) {
  struct Part {
    std::size_t begin;
    WordKind kind;
  };
  static constexpr Part kParts[] = {
      {offsetof(ParityWords, sum_ticket), WordKind::sum_ticket},
      {offsetof(ParityWords, gemm_ticket), WordKind::gemm_ticket},
      {offsetof(ParityWords, pull_ticket), WordKind::pull_ticket},
      {offsetof(ParityWords, route_counted), WordKind::route_counted},
      {offsetof(ParityWords, route_ticket), WordKind::route_ticket},
      {offsetof(ParityWords, exit_count), WordKind::exit_count},
      {offsetof(ParityWords, clear_ticket), WordKind::clear_ticket},
  };
  const auto parity = static_cast<u32>(offset / sizeof(ParityWords));
  const std::size_t within = offset % sizeof(ParityWords);
  for (const Part& part : kParts) {
    if (within >= part.begin)
      return {part.kind, 0, 0, parity, static_cast<u32>((within - part.begin) / sizeof(u32))};
  }
  return {};
}

}  // namespace

const char* name(WordKind kind) {
  static constexpr const char* kNames[] = {
      "unknown",      "abort_word",    "arrived",     "count",        "list",         "start",
      "ranks_out",    "fault_claim",   "generation",  "bad_id_claim", "clear_ticket", "exit_count",
      "route_ticket", "route_counted", "pull_ticket", "gemm_ticket",  "sum_ticket",   "rows_ready",
      "l1_done",      "l2_done",       "expected",    "chunk_count",  "record_flag",  "barrier"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string to_string(const WordName& word) {
  std::string text = word.group == 0 ? "" : "layer" + std::to_string(word.group) + ".";
  text += std::string(name(word.kind)) + "@" + std::to_string(word.owner);
  return text + "[" + std::to_string(word.parity) + "][" + std::to_string(word.index) + "]";
}

WordMap::WordMap(const Problem& p)
    : symmetric_(symmetric_layout(p)),
      local_(local_layout(p)),
      count_half_(sizeof(u64) * kMaxWaves * p.ranks * p.local_experts()),
      list_half_(sizeof(u64) * p.ranks * list_entries(p)),
      expected_half_(sizeof(u64) * kMaxWaves * p.ranks) {}

std::size_t WordMap::parity_bytes(WordKind kind) const {
  if (kind >= WordKind::clear_ticket && kind <= WordKind::sum_ticket) return sizeof(ParityWords);
  switch (kind) {
    case WordKind::rows_ready:
      return (local_.l1_done - local_.rows_ready) / 2;
    case WordKind::l1_done:
      return (local_.l2_done - local_.l1_done) / 2;
    case WordKind::l2_done:
      return (local_.expected - local_.l2_done) / 2;
    case WordKind::count:
      return count_half_;
    case WordKind::list:
      return list_half_;
    case WordKind::expected:
      return expected_half_;
    default:
      return 0;
  }
}

WordName WordMap::twice(WordKind kind, std::size_t offset, std::size_t word_bytes) const {
  const std::size_t half = parity_bytes(kind);
  return {kind, 0, 0, static_cast<u32>(offset / half),
          static_cast<u32>(offset % half / word_bytes)};
}

WordName WordMap::symmetric_word(std::size_t offset) const {
  if (offset >= symmetric_.list) return twice(WordKind::list, offset - symmetric_.list, 8);
  if (offset >= symmetric_.count) return twice(WordKind::count, offset - symmetric_.count, 8);
  if (offset >= offsetof(SymmetricHeader, arrived))
    return once(WordKind::arrived, offset - offsetof(SymmetricHeader, arrived), 8);
  return once(WordKind::abort_word, 0, 8);
}

WordName WordMap::local_word(std::size_t offset) const {
  const LocalLayout& l = local_;
  if (offset >= l.chunk_count) return once(WordKind::chunk_count, offset - l.chunk_count, 4);
  if (offset >= l.expected) return twice(WordKind::expected, offset - l.expected, 8);
  if (offset >= l.l2_done) return twice(WordKind::l2_done, offset - l.l2_done, 4);
  if (offset >= l.l1_done) return twice(WordKind::l1_done, offset - l.l1_done, 4);
  if (offset >= l.rows_ready) return twice(WordKind::rows_ready, offset - l.rows_ready, 4);
  if (offset >= l.words) return parity_word(offset - l.words);
  return header_word(offset);
}

}  // namespace megamoe::sim
