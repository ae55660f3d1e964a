#include "host/checkpoint/tensor_file.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "host/checkpoint/safetensors.hpp"
#include "megamoe/error.hpp"
#include "megamoe/problem.hpp"
#include "numerics/bf16.hpp"

namespace megamoe {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{kMaxRanks} * kMaxTokensPerRank;

[[noreturn]] void refuse(const TensorView& tensor, const std::string& detail) {
  throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", tensor.where(), detail));
}

template <class T>
T element(const TensorView& tensor, std::size_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::size_t num_elements(const TensorView& tensor) {
  return tensor.bytes.size() / dtype_bytes(tensor.dtype);
}

/// Checks that the tensor is [rows, columns] with these rows (0: any) and columns (0: up to
/// `most`).
void check_shape(const TensorView& tensor, std::int64_t rows, const char* columns_name, int columns,
                 int most) {
  const bool matrix = tensor.shape.size() == 2;
  const bool rows_ok =
      matrix && (rows < 0 ? tensor.shape[0] <= kMaxTokens : tensor.shape[0] == rows);
  const bool columns_ok = matrix && (columns > 0 ? tensor.shape[1] == columns
                                                 : tensor.shape[1] >= 1 && tensor.shape[1] <= most);
  if (rows_ok && columns_ok) return;
  const std::string want_rows =
      rows < 0 ? fmt::format("tokens <= {}", kMaxTokens) : fmt::format("tokens = {}", rows);
  const std::string want_columns = columns > 0 ? fmt::format("{} = {}", columns_name, columns)
                                               : fmt::format("{} in 1..{}", columns_name, most);
  refuse(tensor, fmt::format("expected [{}, {}], found {}", want_rows, want_columns,
                             describe(tensor.dtype, tensor.shape)));
}

void read_hidden_states(const TensorView& tensor, const TokenFileLimits& limits, TokenFile& file) {
  expect(tensor, {DType::bf16, DType::f32}, tensor.shape);
  check_shape(tensor, -1, "hidden", limits.hidden, kMaxHidden);
  file.num_tokens = static_cast<int>(tensor.shape[0]);
  file.hidden = static_cast<int>(tensor.shape[1]);
  file.hidden_states.resize(num_elements(tensor));
  for (std::size_t i = 0; i < file.hidden_states.size(); ++i) {
    file.hidden_states[i] = tensor.dtype == DType::bf16 ? element<std::uint16_t>(tensor, i)
                                                        : float_to_bf16(element<float>(tensor, i));
  }
}

void read_ids(const TensorView& tensor, const TokenFileLimits& limits, TokenFile& file) {
  expect(tensor, {DType::i64, DType::i32}, tensor.shape);
  check_shape(tensor, file.num_tokens, "top_k", limits.top_k, kMaxTopK);
  file.top_k = static_cast<int>(tensor.shape[1]);
  const auto top_k = static_cast<std::size_t>(file.top_k);
  file.topk_idx.resize(num_elements(tensor));
  for (std::size_t i = 0; i < file.topk_idx.size(); ++i) {
    const std::int64_t id = tensor.dtype == DType::i64 ? element<std::int64_t>(tensor, i)
                                                       : element<std::int32_t>(tensor, i);
    if (id < -1 || (limits.experts > 0 && id >= limits.experts)) {
      refuse(tensor, fmt::format("expected -1 or an expert{}, found {} at token {}, slot {}",
                                 limits.experts > 0 ? fmt::format(" below {}", limits.experts) : "",
                                 id, i / top_k, i % top_k));
    }
    file.topk_idx[i] = id;
  }
}

void read_weights(const TensorView& tensor, TokenFile& file) {
  expect(tensor, {DType::f32, DType::bf16}, tensor.shape);
  check_shape(tensor, file.num_tokens, "top_k", file.top_k, kMaxTopK);
  file.topk_weights.resize(num_elements(tensor));
  for (std::size_t i = 0; i < file.topk_weights.size(); ++i) {
    file.topk_weights[i] = tensor.dtype == DType::f32
                               ? element<float>(tensor, i)
                               : bf16_to_float(element<std::uint16_t>(tensor, i));
  }
}

}  // namespace

TokenFile read_token_file(const std::string& path, const TokenFileLimits& limits) {
  return read_token_file(SafetensorsFile(path), limits);
}

TokenFile read_token_file(const SafetensorsFile& tensors, const TokenFileLimits& limits) {
  TokenFile file;
  read_hidden_states(tensors.at("hidden_states"), limits, file);
  if (tensors.contains("topk_idx") || tensors.contains("topk_weights")) {
    read_ids(tensors.at("topk_idx"), limits, file);
    read_weights(tensors.at("topk_weights"), file);
  }
  return file;
}

std::vector<int> split_tokens(int num_tokens, int ranks, std::span<const int> counts) {
  std::vector<int> split;
  if (counts.empty()) {
    for (int r = 0; r < ranks; ++r)
      split.push_back(num_tokens / ranks + (r < num_tokens % ranks ? 1 : 0));
    return split;
  }
  if (counts.size() != 1 && counts.size() != static_cast<std::size_t>(ranks)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} token counts for {} ranks; give one, or one per rank",
                            counts.size(), ranks));
  }
  std::int64_t total = 0;
  for (int r = 0; r < ranks; ++r) {
    const int count = counts[counts.size() == 1 ? 0 : static_cast<std::size_t>(r)];
    if (count < 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("token count = {} of rank {} is negative", count, r));
    }
    split.push_back(count);
    total += count;
  }
  if (total != num_tokens) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("token counts add up to {} over {} ranks, but there are {} tokens",
                            total, ranks, num_tokens));
  }
  return split;
}

std::vector<std::uint16_t> pad_rows(std::span<const std::uint16_t> values, int channels,
                                    int padded) {
  const auto from = static_cast<std::size_t>(channels);
  const auto to = static_cast<std::size_t>(padded);
  const std::size_t rows = values.size() / from;
  std::vector<std::uint16_t> wide(rows * to, 0);
  for (std::size_t r = 0; r < rows; ++r)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(r * from), from,
                wide.begin() + static_cast<std::ptrdiff_t>(r * to));
  return wide;
}

}  // namespace megamoe
