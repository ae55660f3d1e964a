#include <deque>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files.hpp"
#include "host/checkpoint/safetensors.hpp"
#include "host/checkpoint/tensor_file.hpp"
#include "numerics/bf16.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    put("hidden_states", DType::bf16, {2, 3}, bf16_);
    put("topk_idx", DType::i64, {2, 2}, ids_);
    put("topk_weights", DType::f32, {2, 2}, weights_);
  }
  template <class T>
  void put(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
    remove(name);
    const auto bytes = bytes_of(values);
    const auto& kept = bytes_.emplace_back(bytes.begin(), bytes.end());
    tensors_.push_back({name, dtype, std::move(shape), kept});
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TensorToWrite& t) { return t.name == name; });
  }
  TokenFile read(const TokenFileLimits& limits = {}) {
    write_safetensors(path_, tensors_);
    return read_token_file(path_, limits);
  }
  std::string read_error(const TokenFileLimits& limits = {}) {
    const std::string message = file_error_of([&] { (void)read(limits); });
    EXPECT_THAT(message, HasSubstr("file " + path_ + ": tensor "));
    return message;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "tokens.safetensors";
  std::deque<std::vector<std::byte>> bytes_;  // of the tensors, each where it was put
  std::vector<TensorToWrite> tensors_;
  const std::vector<std::uint16_t> bf16_{0x3f80, 0, 0x4000, 0xbf80, 1, 2};
  const std::vector<std::int64_t> ids_{0, -1, 3, 1};
  const std::vector<float> weights_{0.25F, 0.0F, 0.5F, 0.125F};
};

TEST_F(TokenFiles, ReadsBothSetsOfDtypes) {
  const TokenFile file = read({.hidden = 3, .top_k = 2, .experts = 4});
  EXPECT_EQ(file.num_tokens, 2);
  EXPECT_EQ(file.hidden, 3);
  EXPECT_EQ(file.top_k, 2);
  EXPECT_EQ(file.hidden_states, bf16_);
  EXPECT_EQ(file.topk_idx, ids_);
  EXPECT_EQ(file.topk_weights, weights_);

  // 1 + 2^-8 lies between two BF16 values: the even one is 1.
  const std::vector<float> x{1.0F + 0x1p-8F, 1.0F + 0x1.8p-8F, -2.0F, 0.0F, 5.0F, 6.0F};
  const std::vector<std::int32_t> ids{0, -1, 3, 1};
  const std::vector<std::uint16_t> weights{0x3f80, 0x4000, 0, 0x3f00};
  put("hidden_states", DType::f32, {2, 3}, x);
  put("topk_idx", DType::i32, {2, 2}, ids);
  put("topk_weights", DType::bf16, {2, 2}, weights);
  const TokenFile other = read();
  EXPECT_THAT(other.hidden_states, ElementsAre(0x3f80, 0x3f81, 0xc000, 0, 0x40a0, 0x40c0));
  EXPECT_EQ(other.topk_idx, ids_);
  EXPECT_THAT(other.topk_weights, ElementsAre(1.0F, 2.0F, 0.0F, 0.5F));
}

TEST_F(TokenFiles, RoutingIsOptionalButWhole) {
  remove("topk_weights");
  EXPECT_THAT(read_error(), HasSubstr("tensor topk_weights: expected in the file, found none"));
  remove("topk_idx");
  EXPECT_EQ(read().top_k, 0);
  put("topk_weights", DType::f32, {2, 2}, weights_);
  EXPECT_THAT(read_error(), HasSubstr("tensor topk_idx: expected in the file, found none"));
  remove("hidden_states");
  EXPECT_THAT(read_error(), HasSubstr("tensor hidden_states"));
}

TEST_F(TokenFiles, NamesWhatDoesNotFit) {
  EXPECT_THAT(
      read_error({.hidden = 4}),
      HasSubstr("hidden_states: expected [tokens <= 9437184, hidden = 4], found BF16 [2, 3]"));
  EXPECT_THAT(read_error({.top_k = 3}),
              HasSubstr("topk_idx: expected [tokens = 2, top_k = 3], found I64 [2, 2]"));
  EXPECT_THAT(read_error({.experts = 3}),
              HasSubstr("topk_idx: expected -1 or an expert below 3, found 3 at token 1, slot 0"));
  const std::vector<std::int64_t> bad{0, 1, 2, -2};
  put("topk_idx", DType::i64, {2, 2}, bad);
  EXPECT_THAT(read_error(), HasSubstr("expected -1 or an expert, found -2 at token 1, slot 1"));
  put("topk_idx", DType::i64, {1, 4}, ids_);
  EXPECT_THAT(read_error(), HasSubstr("expected [tokens = 2, top_k in 1..16], found I64 [1, 4]"));
  put("topk_idx", DType::f32, {2, 2}, weights_);
  EXPECT_THAT(read_error(), HasSubstr("topk_idx: expected I64 or I32 [2, 2], found F32 [2, 2]"));
  put("topk_idx", DType::i64, {2, 2}, ids_);
  put("topk_weights", DType::f32, {4}, weights_);
  EXPECT_THAT(read_error(),
              HasSubstr("topk_weights: expected [tokens = 2, top_k = 2], found F32 [4]"));
  put("topk_weights", DType::i32, {2, 2}, std::vector<std::int32_t>{1, 2, 3, 4});
  EXPECT_THAT(read_error(), HasSubstr("topk_weights: expected F32 or BF16"));
  put("hidden_states", DType::f16, {2, 3}, bf16_);
  EXPECT_THAT(read_error(), HasSubstr("hidden_states: expected BF16 or F32 [2, 3], found F16"));
  put("hidden_states", DType::bf16, {6}, bf16_);
  EXPECT_THAT(read_error(), HasSubstr("hidden in 1..16384], found BF16 [6]"));
  put("hidden_states", DType::bf16, {2, 0}, std::vector<std::uint16_t>());
  EXPECT_THAT(read_error(), HasSubstr("hidden in 1..16384], found BF16 [2, 0]"));
}

TEST_F(TokenFiles, NoTokensAreFine) {
  put("hidden_states", DType::bf16, {0, 3}, std::vector<std::uint16_t>());
  put("topk_idx", DType::i64, {0, 2}, std::vector<std::int64_t>());
  put("topk_weights", DType::f32, {0, 2}, std::vector<float>());
  EXPECT_EQ(read({.hidden = 3, .top_k = 2, .experts = 4}).num_tokens, 0);
}

TEST(SplitTokens, EvenlyOrAsTold) {
  EXPECT_THAT(split_tokens(10, 4), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(split_tokens(2, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(split_tokens(0, 2), ElementsAre(0, 0));
  EXPECT_THAT(split_tokens(9, 3, std::vector{3}), ElementsAre(3, 3, 3));
  EXPECT_THAT(split_tokens(9, 3, std::vector{0, 8, 1}), ElementsAre(0, 8, 1));
  constexpr ErrorCode kArgument = ErrorCode::invalid_argument;
  EXPECT_THAT(file_error_of(
                  [] {
                    (void)split_tokens(9, 3, std::vector{4, 5});
                  },
                  kArgument),
              HasSubstr("2 token counts for 3 ranks"));
  EXPECT_THAT(file_error_of(
                  [] {
                    (void)split_tokens(9, 3, std::vector{0, 8, 2});
                  },
                  kArgument),
              HasSubstr("add up to 10 over 3 ranks, but there are 9 tokens"));
  EXPECT_THAT(file_error_of(
                  [] {
                    (void)split_tokens(9, 3, std::vector{10, -2, 1});
                  },
                  kArgument),
              HasSubstr("token count = -2 of rank 1 is negative"));
  EXPECT_THAT(file_error_of([] { (void)split_tokens(9, 3, std::vector{4}); }, kArgument),
              HasSubstr("add up to 12 over 3 ranks"));
}

TEST(PadRows, ZerosBehindEveryRow) {
  const std::vector<std::uint16_t> values{1, 2, 3, 4};
  EXPECT_THAT(pad_rows(values, 2, 3), ElementsAre(1, 2, 0, 3, 4, 0));
  EXPECT_THAT(pad_rows(values, 2, 2), ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace megamoe
