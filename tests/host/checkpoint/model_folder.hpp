#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "files.hpp"
#include "host/checkpoint/safetensors.hpp"

namespace megamoe {

/// A small checkpoint that a test builds tensor by tensor and may then spoil.
class ModelFolder {
 public:
  explicit ModelFolder(nlohmann::json fields) : config(std::move(fields)) {}

  nlohmann::json config;

  /// A tensor of pseudo-random bytes that are plain numbers in every dtype used here.
  void put(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           std::uint8_t seed = 1) {
    std::size_t bytes = dtype_bytes(dtype);
    for (const std::int64_t dimension : shape) bytes *= static_cast<std::size_t>(dimension);
    std::vector<std::uint8_t> values(bytes);
    std::uint32_t state = seed;
    for (std::size_t i = 0; i < bytes; ++i) {
      state = state * 1664525U + 1013904223U;
      values[i] = static_cast<std::uint8_t>(state >> 24);
      // Upper bytes of F32 and BF16: magnitudes around 1. E8M0: 2^-3 .. 2^4. E4M3: no NaN.
      if (dtype == DType::f32 && i % 4 == 3) values[i] = 0x3f;
      if (dtype == DType::bf16 && i % 2 == 1) values[i] = 0x3f | (values[i] & 0x80);
      if (dtype == DType::f8_e8m0) values[i] = static_cast<std::uint8_t>(124 + values[i] % 8);
      if (dtype == DType::f8_e4m3 && (values[i] & 0x7f) == 0x7f) values[i] = 0;
    }
    put_bytes(name, dtype, std::move(shape), std::move(values));
  }
  void put_bytes(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                 std::vector<std::uint8_t> values) {
    tensors_[name] = {dtype, std::move(shape), std::move(values)};
  }
  void remove(const std::string& name) { ASSERT_EQ(tensors_.erase(name), 1U) << name; }

  /// Writes the checkpoint and gives its folder.
  const std::string& write() {
    std::vector<TensorToWrite> out;
    for (const auto& [name, tensor] : tensors_)
      out.push_back({name, tensor.dtype, tensor.shape, bytes_of(tensor.values)});
    write_safetensors(folder_ / "model.safetensors", out);
    write_file(folder_ / "config.json", config.dump());
    return folder_.path();
  }

 private:
  struct Tensor {
    DType dtype = DType::u8;
    std::vector<std::int64_t> shape;
    std::vector<std::uint8_t> values;
  };
  TemporaryFolder folder_;
  std::map<std::string, Tensor> tensors_;
};

/// Experts of a DeepSeek-V3 layer 0 in FP8.
inline void put_fp8_matrix(ModelFolder& model, const std::string& base, std::int64_t rows,
                           std::int64_t cols) {
  model.put(base + ".weight", DType::f8_e4m3, {rows, cols}, static_cast<std::uint8_t>(base.size()));
  model.put(base + ".weight_scale_inv", DType::f32, {(rows + 127) / 128, (cols + 127) / 128}, 3);
}

inline ModelFolder deepseek_v3(int hidden, int intermediate, int experts, int shared) {
  ModelFolder model({{"model_type", "deepseek_v3"},
                     {"hidden_size", hidden},
                     {"moe_intermediate_size", intermediate},
                     {"n_routed_experts", experts},
                     {"n_shared_experts", shared},
                     {"num_experts_per_tok", 1},
                     {"num_hidden_layers", 1}});
  for (int e = 0; e < experts; ++e) {
    const std::string base = "model.layers.0.mlp.experts." + std::to_string(e);
    put_fp8_matrix(model, base + ".gate_proj", intermediate, hidden);
    put_fp8_matrix(model, base + ".up_proj", intermediate, hidden);
    put_fp8_matrix(model, base + ".down_proj", hidden, intermediate);
  }
  if (shared == 0) return model;
  const std::string base = "model.layers.0.mlp.shared_experts";
  put_fp8_matrix(model, base + ".gate_proj", shared * intermediate, hidden);
  put_fp8_matrix(model, base + ".up_proj", shared * intermediate, hidden);
  put_fp8_matrix(model, base + ".down_proj", hidden, shared * intermediate);
  return model;
}

/// Mixtral's layer 0 in BF16.
inline ModelFolder mixtral(int hidden, int intermediate, int experts) {
  ModelFolder model({{"model_type", "mixtral"},
                     {"hidden_size", hidden},
                     {"intermediate_size", intermediate},
                     {"num_local_experts", experts},
                     {"num_experts_per_tok", 1},
                     {"num_hidden_layers", 1}});
  for (int e = 0; e < experts; ++e) {
    const std::string base = "model.layers.0.block_sparse_moe.experts." + std::to_string(e);
    model.put(base + ".w1.weight", DType::bf16, {intermediate, hidden}, 5);
    model.put(base + ".w3.weight", DType::bf16, {intermediate, hidden}, 6);
    model.put(base + ".w2.weight", DType::bf16, {hidden, intermediate}, 7);
  }
  return model;
}

/// gpt-oss' layer 0: MXFP4 with biases.
inline ModelFolder gpt_oss(int hidden, int intermediate, int experts) {
  ModelFolder model({{"model_type", "gpt_oss"},
                     {"hidden_size", hidden},
                     {"intermediate_size", intermediate},
                     {"num_local_experts", experts},
                     {"num_experts_per_tok", 1},
                     {"num_hidden_layers", 1}});
  const std::string base = "model.layers.0.mlp.experts.";
  model.put(base + "gate_up_proj_blocks", DType::u8, {experts, 2 * intermediate, hidden / 32, 16});
  model.put(base + "gate_up_proj_scales", DType::f8_e8m0, {experts, 2 * intermediate, hidden / 32});
  model.put(base + "gate_up_proj_bias", DType::bf16, {experts, 2 * intermediate}, 9);
  model.put(base + "down_proj_blocks", DType::u8, {experts, hidden, intermediate / 32, 16}, 2);
  model.put(base + "down_proj_scales", DType::f8_e8m0, {experts, hidden, intermediate / 32}, 2);
  model.put(base + "down_proj_bias", DType::bf16, {experts, hidden}, 8);
  return model;
}

}  // namespace megamoe
