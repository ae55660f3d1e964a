#include "cli/run_files.hpp"

#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "host/checkpoint/safetensors.hpp"
#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"

namespace megamoe::cli {
namespace {

[[noreturn]] void refuse(const TensorView& tensor, const std::string& why) {
  throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", tensor.where(), why));
}

void require_matrix(const TensorView& tensor) {
  if (tensor.shape.size() == 2 && tensor.shape[1] > 0) return;
  refuse(tensor,
         fmt::format("expected [tokens, n], found {}", describe(tensor.dtype, tensor.shape)));
}

template <class Value>
Value element(const TensorView& tensor, std::size_t i) {
  Value value;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof(Value), sizeof(Value));
  return value;
}

std::size_t num_elements(const TensorView& tensor) {
  return tensor.bytes.size() / dtype_bytes(tensor.dtype);
}

void read_hidden_states(const TensorView& tensor, InputTokens& input) {
  require_matrix(tensor);
  expect(tensor, {DType::bf16, DType::f32}, tensor.shape);
  input.tokens = tensor.shape[0];
  input.hidden = tensor.shape[1];
  input.hidden_states.resize(num_elements(tensor));
  for (std::size_t i = 0; i < input.hidden_states.size(); ++i) {
    input.hidden_states[i] = tensor.dtype == DType::bf16 ? element<std::uint16_t>(tensor, i)
                                                         : float_to_bf16(element<float>(tensor, i));
  }
}

void read_routing(const TensorView& ids, const TensorView& weights, InputTokens& input) {
  require_matrix(ids);
  input.top_k = ids.shape[1];
  const std::vector<std::int64_t> shape = {input.tokens, input.top_k};
  expect(ids, {DType::i64, DType::i32}, shape);
  expect(weights, {DType::f32}, shape);
  input.topk_idx.resize(num_elements(ids));
  input.topk_weights.resize(input.topk_idx.size());
  for (std::size_t i = 0; i < input.topk_idx.size(); ++i) {
    input.topk_idx[i] =
        ids.dtype == DType::i64 ? element<std::int64_t>(ids, i) : element<std::int32_t>(ids, i);
    input.topk_weights[i] = element<float>(weights, i);
  }
}

}  // namespace

InputTokens read_input(const std::string& path) {
  const SafetensorsFile file(path);
  InputTokens input;
  read_hidden_states(file.at("hidden_states"), input);
  if (file.contains("topk_idx") || file.contains("topk_weights")) {
    read_routing(file.at("topk_idx"), file.at("topk_weights"), input);
  }
  return input;
}

std::vector<int> deal_tokens(std::int64_t tokens, int ranks) {
  std::vector<int> counts;
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t count = tokens / ranks + (r < tokens % ranks ? 1 : 0);
    if (count > kMaxTokensPerRank) {
      throw Error(ErrorCode::invalid_file,
                  fmt::format("{} tokens are more than {} ranks can take ({} each)", tokens, ranks,
                              kMaxTokensPerRank));
    }
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

void check_output_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  std::string why;
  if (!fs::is_directory(folder, ignored)) {
    why = fmt::format("{} is not a folder", folder.string());
  } else if (access(folder.c_str(), W_OK) != 0) {
    why = fmt::format("folder {} cannot be written to", folder.string());
  } else if (fs::is_directory(path, ignored)) {
    why = "it is a folder";
  }
  if (why.empty()) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("--output = {}: {}", path, why));
}

void write_output(const std::string& path, const Shape& shape,
                  const std::vector<std::vector<std::uint16_t>>& y_per_rank) {
  const auto padded = static_cast<std::size_t>(shape.problem.hidden);
  const auto stated = static_cast<std::size_t>(shape.stated_hidden);
  std::vector<std::uint16_t> y;
  std::string counts;
  for (const std::vector<std::uint16_t>& rows : y_per_rank) {
    for (std::size_t row = 0; row < rows.size(); row += padded) {
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row);
      y.insert(y.end(), begin, begin + static_cast<std::ptrdiff_t>(stated));
    }
    counts += fmt::format("{}{}", counts.empty() ? "" : ",", rows.size() / padded);
  }
  const TensorToWrite tensor{
      .name = "y",
      .dtype = DType::bf16,
      .shape = {static_cast<std::int64_t>(y.size() / stated), static_cast<std::int64_t>(stated)},
      .bytes = std::as_bytes(std::span<const std::uint16_t>(y))};
  write_safetensors(path, {&tensor, 1},
                    {{"precision", name(shape.problem.precision)}, {"tokens_per_rank", counts}});
}

}  // namespace megamoe::cli
