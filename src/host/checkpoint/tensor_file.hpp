#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace megamoe {

class SafetensorsFile;

/// What a file of tokens must fit; 0: anything.
struct TokenFileLimits {
  int hidden = 0;   ///< channels of hidden_states, the model's own
  int top_k = 0;    ///< slots per token
  int experts = 0;  ///< ids are -1 (no expert) or below this
};

/// Tokens and their routing, in the file's order.
struct TokenFile {
  int num_tokens = 0;
  int hidden = 0;
  int top_k = 0;                                  ///< 0: the file has no routing
  std::vector<std::uint16_t> hidden_states = {};  ///< BF16 [num_tokens, hidden]
  std::vector<std::int64_t> topk_idx = {};        ///< [num_tokens, top_k]
  std::vector<float> topk_weights = {};           ///< [num_tokens, top_k]
};

/// Reads a safetensors file with hidden_states [tokens, hidden], BF16, or F32 that is rounded to
/// BF16, and, both or neither, topk_idx [tokens, top_k], I64 or I32, and topk_weights
/// [tokens, top_k], F32 or BF16. Throws Error(invalid_file) naming file, tensor, expected and
/// found.
TokenFile read_token_file(const std::string& path, const TokenFileLimits& limits = {});
TokenFile read_token_file(const SafetensorsFile& tensors, const TokenFileLimits& limits = {});

/// How many of a file's tokens each rank takes, in the file's order. `counts`: one count per rank,
/// one count that holds for every rank, or none: as even as possible, the first ranks one more.
/// Throws Error(invalid_argument) when the counts are not for these ranks or do not add up.
std::vector<int> split_tokens(int num_tokens, int ranks, std::span<const int> counts = {});

/// BF16 rows [rows, channels] in a wider stride, zeros behind: [rows, padded].
std::vector<std::uint16_t> pad_rows(std::span<const std::uint16_t> values, int channels,
                                    int padded);

}  // namespace megamoe
