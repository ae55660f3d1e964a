// Damaged files through every reader of checkpoints and tokens: the only thing that may come out is
// an Error that names the file. Inputs follow from the seed alone; MEGAMOE_FUZZ_SEED changes
// them, and MEGAMOE_FUZZ_PERCENT their number, for longer hunts.

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files.hpp"
#include "host/checkpoint/checkpoint_files.hpp"
#include "host/checkpoint/model_config.hpp"
#include "host/checkpoint/safetensors.hpp"
#include "host/checkpoint/tensor_file.hpp"
#include "megamoe/checkpoint.hpp"
#include "model_folder.hpp"
#include "mutate.hpp"

namespace megamoe {
namespace {

using nlohmann::json;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Tally {
  std::size_t accepted = 0, refused = 0;
};

/// Runs `body(choices)` for `count` inputs; it may throw an Error with one of `codes`, nothing
/// else.
template <class Body>
Tally fuzz(std::size_t count, const std::string& path, std::initializer_list<ErrorCode> codes,
           Body body) {
  count = count * from_environment("MEGAMOE_FUZZ_PERCENT", 100) / 100;
  const std::uint64_t seed = from_environment("MEGAMOE_FUZZ_SEED", 1);
  Tally tally;
  for (std::size_t i = 0; i < count; ++i) {
    Choices pick(seed + i * 1000003);
    try {
      body(pick);
      ++tally.accepted;
    } catch (const Error& e) {
      ++tally.refused;
      const std::string what = e.what();
      EXPECT_NE(what.find(path), std::string::npos) << "input " << i << ": " << what;
      EXPECT_NE(std::find(codes.begin(), codes.end(), e.code()), codes.end())
          << "input " << i << ": " << what;
    } catch (const std::exception& e) {
      ADD_FAILURE() << "input " << i << ": not an Error: " << e.what();
    }
  }
  return tally;
}

/// Both outcomes must have been met often, or the damage is too weak or too strong to test much.
void expect_both(const Tally& tally) {
  EXPECT_GT(tally.accepted, (tally.accepted + tally.refused) / 200);
  EXPECT_GT(tally.refused, (tally.accepted + tally.refused) / 5);
}

struct Split {
  std::string header, data;
};

Split split(const std::string& file) {
  std::uint64_t length = 0;
  for (int i = 8; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(file[static_cast<std::size_t>(i)]);
  return {file.substr(8, length), file.substr(8 + length)};
}

/// A safetensors file, damaged in its header's values, its header's text or its bytes.
std::string damaged_safetensors(const std::string& good, Choices& pick) {
  Split parts = split(good);
  if (pick.one_in(4)) {
    std::string bytes = good;
    for (std::size_t n = 1 + pick.below(3); n > 0; --n) mutate_bytes(bytes, pick);
    return bytes;
  }
  if (pick.one_in(3)) {
    for (std::size_t n = 1 + pick.below(3); n > 0; --n) mutate_bytes(parts.header, pick);
  } else {
    json header = json::parse(parts.header);
    for (std::size_t n = 1 + pick.below(3); n > 0; --n) mutate_json(header, pick);
    parts.header = header.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  if (pick.one_in(8)) mutate_bytes(parts.data, pick);
  std::string bytes = safetensors_bytes(parts.header, 0) + parts.data;
  if (pick.one_in(16)) bytes[pick.below(8)] = static_cast<char>(pick.next());
  return bytes;
}

std::string damaged_json(const std::string& good, Choices& pick) {
  std::string text = good;
  if (pick.one_in(3)) {
    for (std::size_t n = 1 + pick.below(3); n > 0; --n) mutate_bytes(text, pick);
    return text;
  }
  if (pick.one_in(50)) return std::string(1 + pick.below(100'000), pick.one_in(2) ? '[' : '{');
  json value = json::parse(text);
  for (std::size_t n = 1 + pick.below(2); n > 0; --n) mutate_json(value, pick);
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Reads every byte of a tensor.
unsigned touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte b : bytes) sum += std::to_integer<unsigned>(b);
  return sum;
}

/// The bytes on the heap, exactly as long as they are, so that AddressSanitizer sees a read past
/// their end.
std::vector<std::byte> exact(const std::string& bytes) {
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

TEST(FuzzCheckpoint, SafetensorsFiles) {
  ModelFolder model = gpt_oss(32, 32, 1);
  const std::string good = read_file(model.write() + "/model.safetensors");
  const std::string path = "damaged.safetensors";
  expect_both(fuzz(30'000, path, {ErrorCode::invalid_file}, [&](Choices& pick) {
    const std::vector<std::byte> bytes = exact(damaged_safetensors(good, pick));
    const SafetensorsFile file(bytes, path);
    std::size_t header = 0;
    for (std::size_t i = 8; i-- > 0;) header = header << 8 | std::to_integer<std::size_t>(bytes[i]);
    std::size_t total = 8 + header;
    for (const std::string& name : file.names()) {
      // An unknown dtype is refused only here: the file as a whole was accepted.
      const auto view = file.find(name);
      total += view->bytes.size();
      touch(view->bytes);
    }
    EXPECT_EQ(total, bytes.size());
  }));
}

TEST(FuzzCheckpoint, Indexes) {
  const std::string good =
      R"({"metadata":{"total_size":8},"weight_map":{"s1":"s1","s2":"s2","gone":"s1"}})";
  const std::string path = "model.safetensors.index.json";
  expect_both(fuzz(20'000, path, {ErrorCode::invalid_file}, [&](Choices& pick) {
    for (const auto& [tensor, file] : parse_checkpoint_index(damaged_json(good, pick), path)) {
      EXPECT_NE(file, "");
      EXPECT_NE(file, "..");
      EXPECT_EQ(file.find('/'), std::string::npos) << file;
    }
  }));
}

TEST(FuzzCheckpoint, Configs) {
  const std::string good = R"({"model_type":"kimi_k3","quantization_config":{"quant_method":"fp8",
    "weight_block_size":[128,128]},"text_config":{"model_type":"deepseek_v3","hidden_size":128,
    "routed_expert_hidden_size":128,"moe_intermediate_size":128,"n_routed_experts":4,
    "num_experts_per_tok":2,"n_shared_experts":1,"num_hidden_layers":3,"hidden_act":"silu",
    "swiglu_limit":7.0,"routed_scaling_factor":2.5,"activation_situ_beta":4.0}})";
  expect_both(fuzz(30'000, "a/config.json", {ErrorCode::invalid_file}, [&](Choices& pick) {
    const ModelConfig config = parse_model_config(damaged_json(good, pick), "a/config.json");
    EXPECT_GE(config.hidden, 1);
    EXPECT_LE(config.hidden, kMaxHidden);
    EXPECT_GE(config.intermediate, 1);
    EXPECT_LE(config.intermediate, kMaxIntermediate);
    EXPECT_GE(config.experts, config.top_k);
    EXPECT_GE(config.top_k, 1);
    EXPECT_LE(config.top_k, kMaxTopK);
    EXPECT_LE(config.shared_experts, kMaxSharedExperts);
    EXPECT_GT(config.activation.clamp, 0.0F);
    EXPECT_NE(config.family, nullptr);
  }));
}

TEST(FuzzCheckpoint, TokenFiles) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> x(6, 0x3f80);
  const std::vector<std::int64_t> ids{0, -1, 3, 1};
  const std::vector<float> weights(4, 0.5F);
  write_safetensors(
      folder / "tokens",
      std::vector<TensorToWrite>{{"hidden_states", DType::bf16, {2, 3}, bytes_of(x)},
                                 {"topk_idx", DType::i64, {2, 2}, bytes_of(ids)},
                                 {"topk_weights", DType::f32, {2, 2}, bytes_of(weights)}});
  const std::string good = read_file(folder / "tokens");
  const std::string path = "damaged.safetensors";
  expect_both(fuzz(20'000, path, {ErrorCode::invalid_file}, [&](Choices& pick) {
    const std::vector<std::byte> bytes = exact(damaged_safetensors(good, pick));
    const TokenFile file = read_token_file(SafetensorsFile(bytes, path), {.experts = 4});
    const auto tokens = static_cast<std::size_t>(file.num_tokens);
    EXPECT_EQ(file.hidden_states.size(), tokens * static_cast<std::size_t>(file.hidden));
    EXPECT_EQ(file.topk_idx.size(), tokens * static_cast<std::size_t>(file.top_k));
    EXPECT_EQ(file.topk_weights.size(), file.topk_idx.size());
    for (const std::int64_t id : file.topk_idx) EXPECT_TRUE(id >= -1 && id < 4) << id;
  }));
}

/// A whole checkpoint with one of its files damaged, through load_layer().
void fuzz_layers(ModelFolder& model, std::size_t count) {
  const std::string& folder = model.write();
  const std::string tensors_path = folder + "/model.safetensors";
  const std::string config_path = folder + "/config.json";
  const std::string tensors = read_file(tensors_path);
  const std::string config = read_file(config_path);
  expect_both(fuzz(
      count, folder, {ErrorCode::invalid_file, ErrorCode::invalid_argument, ErrorCode::unsupported},
      [&](Choices& pick) {
        const bool damage_config = pick.one_in(2);
        write_file(config_path, damage_config ? damaged_json(config, pick) : config);
        write_file(tensors_path, damage_config ? tensors : damaged_safetensors(tensors, pick));
        LoadOptions options;
        options.ranks = 1 + static_cast<int>(pick.below(2));
        if (pick.one_in(2)) options.precision = Precision::fp8;
        const LoadedLayer layer = load_layer(folder, 0, options);
        const ExpertBytes one =
            expert_bytes(layer.routed.precision, layer.routed.hidden, layer.routed.intermediate);
        const auto experts = static_cast<std::size_t>(layer.routed.num_experts);
        EXPECT_EQ(layer.routed.w1.size(), experts * one.w1);
        EXPECT_EQ(layer.routed.w2_scales.size(), experts * one.w2_scales);
      }));
}

TEST(FuzzCheckpoint, FusedLayers) {
  ModelFolder model = gpt_oss(32, 32, 2);
  fuzz_layers(model, 500);
}

TEST(FuzzCheckpoint, LayersWithSharedExperts) {
  ModelFolder model = deepseek_v3(16, 16, 2, 1);
  fuzz_layers(model, 500);
}

TEST(FuzzCheckpoint, QuantisedLayers) {
  ModelFolder model = mixtral(16, 16, 2);
  fuzz_layers(model, 500);
}

}  // namespace
}  // namespace megamoe
