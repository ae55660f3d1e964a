#pragma once

#include <string>

#include "protocol/memory.hpp"
#include "sim/view.hpp"

namespace megamoe::sim {

/// What a word is for; PROTOCOL.md has a row for each that the layout holds.
enum class WordKind : unsigned char {
  unknown,
  abort_word,
  arrived,
  count,
  list,
  start,
  ranks_out,
  fault_claim,
  generation,
  bad_id_claim,
  clear_ticket,
  exit_count,
  route_ticket,
  route_counted,
  pull_ticket,
  gemm_ticket,
  sum_ticket,
  rows_ready,
  l1_done,
  l2_done,
  expected,
  chunk_count,
  record_flag,  ///< of the fault record, in host memory
  barrier,      ///< in a CTA's shared memory
};
const char* name(WordKind kind);

/// One word: whose memory it is in, and its place among those of its kind.
struct WordName {
  WordKind kind = WordKind::unknown;
  u32 group = 0;
  u32 owner = 0;
  u32 parity = 0;
  u32 index = 0;  ///< within one parity
};
std::string to_string(const WordName& word);

/// Names the words of the regions of one Problem.
class WordMap {
 public:
  explicit WordMap(const Problem& problem);

  /// The word at `offset` of a symmetric or of a local region.
  [[nodiscard]] WordName symmetric_word(std::size_t offset) const;
  [[nodiscard]] WordName local_word(std::size_t offset) const;
  /// Bytes between the two copies of a word; 0 where there is one.
  [[nodiscard]] std::size_t parity_bytes(WordKind kind) const;

 private:
  [[nodiscard]] WordName twice(WordKind kind, std::size_t offset, std::size_t word_bytes) const;

  SymmetricLayout symmetric_;
  LocalLayout local_;
  std::size_t count_half_;
  std::size_t list_half_;
  std::size_t expected_half_;
};

}  // namespace megamoe::sim
