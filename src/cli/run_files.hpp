#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/problem_flags.hpp"

namespace megamoe::cli {

/// The tokens of an --input file, all ranks' in order.
struct InputTokens {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::vector<std::uint16_t> hidden_states;  ///< BF16 [tokens, hidden]
  std::int64_t top_k = 0;                    ///< 0: the file has no routing
  std::vector<std::int64_t> topk_idx;        ///< [tokens, top_k]
  std::vector<float> topk_weights;           ///< [tokens, top_k]
};

/// Reads hidden_states (BF16 or F32, rounded to BF16) and, together or not at all, topk_idx (I64 or
/// I32) and topk_weights (F32). Throws Error(invalid_file).
InputTokens read_input(const std::string& path);

/// Deals `tokens` tokens to `ranks` ranks as evenly as possible, the first ranks one more.
std::vector<int> deal_tokens(std::int64_t tokens, int ranks);

/// Throws Error(invalid_argument) if no file can be written at `path`, as far as it can be seen
/// before the work.
void check_output_path(const std::string& path);

/// Writes "y" BF16 [all tokens, stated hidden] and the request's figures as metadata.
void write_output(const std::string& path, const Shape& shape,
                  const std::vector<std::vector<std::uint16_t>>& y_per_rank);

}  // namespace megamoe::cli
