// Writes small cases of every precision, activation, bias, shared expert, routing and row order
// with the reference's answer: FOLDER/data.bin holds the arrays, FOLDER/cases.json says what and
// where.
#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megamoe/error.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"
#include "ref/random_case.hpp"
#include "ref/reference.hpp"

namespace megamoe::ref {
namespace {

using Json = nlohmann::json;

/// Appends arrays to a file and describes each: {offset, dtype, shape}.
class ArrayFile {
 public:
  explicit ArrayFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {}

  template <class T>
  Json add(const std::vector<T>& values, const char* dtype, const std::vector<int>& shape) {
    const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(T));
    file_.write(reinterpret_cast<const char*>(values.data()), bytes);
    Json entry = {{"offset", offset_}, {"dtype", dtype}, {"shape", shape}};
    offset_ += bytes;
    return entry;
  }

  void close() {
    file_.close();
    if (!file_) throw Error(ErrorCode::system, fmt::format("cannot write {}", path_));
  }

 private:
  std::string path_;
  std::ofstream file_;
  std::streamsize offset_ = 0;
};

/// What distinguishes one case from the others.
struct CaseSpec {
  Problem problem;
  Routing routing;
  WeightOptions weights;
  std::vector<int> tokens;
  bool special_values = false;
};

Json describe(const CaseSpec& spec) {
  const Problem& p = spec.problem;
  const Activation& a = p.activation;
  // JSON has no infinity: null stands for it.
  const auto number = [](float v) { return v == Activation::kNone ? Json() : Json(v); };
  return {{"precision", name(p.precision)},
          {"ranks", p.ranks},
          {"experts", p.experts},
          {"top_k", p.top_k},
          {"hidden", p.hidden},
          {"intermediate", p.intermediate},
          {"shared_experts", p.shared_experts},
          {"interleaved", spec.weights.w1_order == W1Order::interleaved_8},
          {"routing", name(spec.routing)},
          {"activation",
           {{"kind", name(a.kind)},
            {"clamp", number(a.clamp)},
            {"alpha", a.alpha},
            {"up_bias", a.up_bias},
            {"beta", number(a.beta)},
            {"linear_beta", number(a.linear_beta)}}}};
}

Json dump_tensors(ArrayFile& file, const OwnedExpertTensors& t) {
  const int experts = t.shape.num_experts;
  const int hidden = t.shape.hidden;
  const int intermediate = t.shape.intermediate;
  const auto matrix = [&](const std::vector<std::byte>& data, const std::vector<std::byte>& scales,
                          int rows, int cols) -> Json {
    switch (t.shape.precision) {
      case Precision::fp8:
        return {file.add(data, "<u1", {experts, rows, cols}),
                file.add(scales, "<f4", {experts, rows / 128, cols / 128})};
      case Precision::bf16:
        return {file.add(data, "<u2", {experts, rows, cols}), Json()};
      case Precision::mxfp4:
      case Precision::mxfp8_mxfp4:
        break;
    }
    return {file.add(data, "<u1", {experts, rows, cols / 2}),
            file.add(scales, "<u1", {experts, rows, cols / 32})};
  };
  Json out = {{"w1", matrix(t.w1, t.w1_scales, 2 * intermediate, hidden)},
              {"w2", matrix(t.w2, t.w2_scales, hidden, intermediate)}};
  if (!t.b1.empty()) {
    out["b1"] = file.add(t.b1, "<f4", {experts, 2 * intermediate});
    out["b2"] = file.add(t.b2, "<f4", {experts, hidden});
  }
  return out;
}

Json dump_tokens(ArrayFile& file, const RankTokens& t) {
  const Problem& p = t.problem;
  const int n = t.num_tokens;
  const bool bf16 = p.precision == Precision::bf16;
  const bool mx = p.precision == Precision::mxfp8_mxfp4;
  Json out = {{"hidden_states", file.add(t.hidden_states, "<u2", {n, p.hidden})},
              {"x", file.add(t.x, bf16 ? "<u2" : "<u1", {n, p.hidden})},
              {"topk_idx", file.add(t.topk_idx, "<i8", {n, p.top_k})},
              {"topk_weights", file.add(t.topk_weights, "<f4", {n, p.top_k})}};
  if (!bf16) {
    out["x_scales"] = file.add(t.x_scales, mx ? "<u1" : "<f4",
                               {n, p.hidden / (mx ? kMxScaleGroup : kScaleGroup)});
  }
  return out;
}

/// Puts the values that quantisation treats apart into the first rank's first tokens, and ids that
/// are no experts into the next.
void make_special(const Problem& p, RankTokens& t) {
  std::vector<std::uint16_t> x = t.hidden_states;
  std::vector<std::int64_t> ids = t.topk_idx;
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const auto set_row = [&](std::size_t token, std::uint16_t bits) {
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(token * hidden), hidden, bits);
  };
  set_row(0, 0x8000);  // -0
  set_row(1, 0x0003);  // subnormal
  x[2 * hidden + 5] = float_to_bf16(std::numeric_limits<float>::quiet_NaN());
  x[3 * hidden + 7] = 0xff80;  // -Inf
  x[4 * hidden] = 0x7e00;      // 4e37
  ids[5 * static_cast<std::size_t>(p.top_k)] = p.experts;
  ids[6 * static_cast<std::size_t>(p.top_k)] = std::numeric_limits<std::int64_t>::min();
  t = stage_tokens(p, std::move(x), std::move(ids), t.topk_weights);
}

Json dump_case(ArrayFile& file, const CaseSpec& spec, std::uint64_t seed) {
  const Problem& p = spec.problem;
  const OwnedLayerWeights layer = random_layer(p, seed, spec.weights);
  RandomInputs inputs = random_inputs(p, spec.tokens, spec.routing, seed + 1);
  if (spec.special_values) make_special(p, inputs.ranks[0]);
  Json out = describe(spec);
  for (const OwnedExpertTensors& t : layer.routed) out["routed"].push_back(dump_tensors(file, t));
  if (p.shared_experts > 0) out["shared"] = dump_tensors(file, layer.shared);
  for (const RankTokens& t : inputs.ranks) out["tokens"].push_back(dump_tokens(file, t));
  const Input view = inputs.view();
  const auto y = run(view, layer.view());
  out["y"] = file.add(y, "<u2", {static_cast<int>(y.size()) / p.hidden, p.hidden});
  out["received"] = received_rows_per_expert(view);
  return out;
}

const std::vector<Activation> kActivations = {
    {},
    {.clamp = 0.75F},
    swiglu_oai(),
    {.kind = ActivationKind::situ, .beta = 4.0F, .linear_beta = 25.0F},
    {.kind = ActivationKind::situ, .beta = 0.5F}};

/// Every precision with every activation, each pair with and without biases; the other choices take
/// turns.
std::vector<CaseSpec> all_cases() {
  const std::vector<Routing> routings = {{RoutingKind::uniform, 0.0},
                                         {RoutingKind::masked, 0.3},
                                         {RoutingKind::one_rank, 0.0},
                                         {RoutingKind::skewed, 0.0},
                                         {RoutingKind::none, 0.0}};
  std::vector<CaseSpec> cases;
  for (Precision precision :
       {Precision::fp8, Precision::bf16, Precision::mxfp4, Precision::mxfp8_mxfp4}) {
    for (const Activation& activation : kActivations) {
      for (bool biases : {false, true}) {
        const std::size_t i = cases.size();
        CaseSpec spec;
        spec.problem = {.ranks = 2,
                        .experts = 6,
                        .top_k = 3,
                        .hidden = i % 3 == 0 ? 384 : 256,
                        .intermediate = i % 4 == 1 ? 128 : 384,
                        .max_tokens_per_rank = 16,
                        .precision = precision,
                        .activation = activation,
                        .shared_experts = static_cast<int>(i % 3)};
        spec.routing = routings[i % routings.size()];
        spec.weights = {
            .w1_order = i % 2 == i / 2 % 2 ? W1Order::interleaved_8 : W1Order::gate_then_up,
            .biases = biases};
        spec.tokens = i % 7 == 3 ? std::vector{0, 9} : std::vector{11, 4};
        spec.special_values = spec.tokens[0] > 0 && i % 2 == 0;
        cases.push_back(spec);
      }
    }
  }
  return cases;
}

void dump(const std::string& folder) {
  ArrayFile file(folder + "/data.bin");
  Json cases = Json::array();
  std::uint64_t seed = 100;
  for (const CaseSpec& spec : all_cases()) cases.push_back(dump_case(file, spec, seed += 2));
  file.close();
  std::ofstream index(folder + "/cases.json");
  index << cases.dump(1) << '\n';
  index.close();
  if (!index) throw Error(ErrorCode::system, fmt::format("cannot write {}/cases.json", folder));
}

}  // namespace
}  // namespace megamoe::ref

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " FOLDER\n";
    return 2;
  }
  try {
    megamoe::ref::dump(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
