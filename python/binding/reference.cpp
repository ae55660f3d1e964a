#include "ref/reference.hpp"

#include <fmt/format.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "config/kernel_config.hpp"
#include "layout/elements.hpp"
#include "numerics/bf16.hpp"
#include "numerics/quantize.hpp"
#include "python/binding/bind.hpp"
#include "ref/compare.hpp"

namespace megamoe::python {
namespace {

/// One rank's input: (x, x_scales, topk_idx, topk_weights).
using Inputs = std::tuple<nb::object, nb::object, nb::object, nb::object>;

ref::RankInput rank_input(const Problem& p, const Inputs& arrays, std::vector<Tensor>& held) {
  const auto& [x, x_scales, topk_idx, topk_weights] = arrays;
  const std::vector<std::int64_t> found = shape_of(x, "x");
  const std::int64_t rows = found.empty() ? 0 : found[0];
  const bool bf16 = p.precision == Precision::bf16;
  const bool mx = p.precision == Precision::mxfp8_mxfp4;
  ref::RankInput input;
  input.num_tokens = static_cast<int>(rows);
  const auto take = [&](const nb::object& array, const char* name, Element element,
                        std::int64_t columns) {
    held.emplace_back(array, name, element, std::vector<std::int64_t>{rows, columns}, Place{});
    return held.back().bytes();
  };
  input.x = take(x, "x", bf16 ? Element::bf16 : Element::code8, p.hidden);
  if (!bf16) {
    input.x_scales = take(x_scales, "x_scales", mx ? Element::code8 : Element::f32,
                          p.hidden / scale_channels(p.precision));
  }
  input.topk_idx =
      reinterpret_cast<const std::int64_t*>(take(topk_idx, "topk_idx", Element::i64, p.top_k));
  input.topk_weights =
      reinterpret_cast<const float*>(take(topk_weights, "topk_weights", Element::f32, p.top_k));
  return input;
}

nb::list reference(const Problem& p, const std::vector<Inputs>& inputs,
                   const std::vector<Weights*>& routed, const std::vector<Weights*>& shared,
                   int threads) {
  const auto ranks = static_cast<std::size_t>(p.ranks);
  const std::size_t want_shared = p.shared_experts > 0 ? ranks : 0;
  if (inputs.size() != ranks || routed.size() != ranks || shared.size() != want_shared) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} inputs, {} weights, {} shared weights; {} ranks need {}, {}, {}",
                    inputs.size(), routed.size(), shared.size(), ranks, ranks, ranks, want_shared));
  }
  std::vector<Tensor> held;
  ref::Input input{p, {}};
  ref::LayerWeights weights;
  for (const Inputs& rank : inputs) input.ranks.push_back(rank_input(p, rank, held));
  for (const auto* list : {&routed, &shared}) {
    for (const Weights* w : *list) {
      if (w->place != Place{})
        throw Error(ErrorCode::invalid_argument, "weights are on a GPU; the reference is not");
      (list == &routed ? weights.routed : weights.shared).push_back(w->tensors);
    }
  }
  std::vector<std::uint16_t> y;
  {
    const nb::gil_scoped_release unlocked;
    y = ref::run(input, weights, threads);
  }
  nb::list out;
  auto from = y.begin();
  const auto hidden = static_cast<std::size_t>(p.hidden);
  for (const ref::RankInput& rank : input.ranks) {
    const auto rows = static_cast<std::size_t>(rank.num_tokens);
    const auto to = from + static_cast<std::ptrdiff_t>(rows * hidden);
    out.append(new_array(std::vector<std::uint16_t>(from, to), {rows, hidden}));
    from = to;
  }
  return out;
}

nb::tuple quantize_rows(nb::handle values) {
  const std::vector<std::int64_t> shape = shape_of(values, "hidden_states");
  if (shape.size() != 2 || shape[1] % kScaleGroup != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("hidden_states has {} dimensions, {} channels; needed: [tokens, a "
                            "multiple of {}]",
                            shape.size(), shape.size() > 1 ? shape[1] : 0, kScaleGroup));
  }
  const Tensor x(values, "hidden_states", Element::bf16, shape, {});
  const auto rows = static_cast<std::size_t>(shape[0]);
  const auto channels = static_cast<std::size_t>(shape[1]);
  std::vector<std::uint8_t> codes(rows * channels);
  std::vector<float> scales(rows * channels / kScaleGroup), row(channels);
  {
    const nb::gil_scoped_release unlocked;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < channels; ++c)
        row[c] = bf16_to_float(x.as<std::uint16_t>()[r * channels + c]);
      quantize_row(row.data(), static_cast<int>(channels), codes.data() + r * channels,
                   scales.data() + r * channels / kScaleGroup);
    }
  }
  return nb::make_tuple(new_array(std::move(codes), {rows, channels}),
                        new_array(std::move(scales), {rows, channels / kScaleGroup}));
}

nb::tuple compare(nb::handle y, nb::handle reference_y) {
  const std::vector<std::int64_t> shape = shape_of(y, "y");
  if (shape.size() != 2) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("y has {} dimensions; needed: [tokens, hidden]", shape.size()));
  }
  const Tensor a(y, "y", Element::bf16, shape, {});
  const Tensor b(reference_y, "reference", Element::bf16, shape, {});
  const auto count = static_cast<std::size_t>(shape[0] * shape[1]);
  const ref::Difference d = ref::compare(
      {a.as<std::uint16_t>(), count}, {b.as<std::uint16_t>(), count}, static_cast<int>(shape[1]));
  return nb::make_tuple(d.diff, d.worst_row_relative_l2, d.worst_row);
}

int block_rows(const Problem& p, long tokens) { return choose_config(p, tokens).block_rows; }

}  // namespace

void bind_reference(nb::module_& module) {
  using namespace nb::literals;
  module.def("reference", &reference, "problem"_a, "inputs"_a, "weights"_a, "shared"_a,
             "threads"_a = 1);
  module.def("quantize_rows", &quantize_rows, "hidden_states"_a);
  module.def("compare", &compare, "y"_a, "reference"_a);
  module.def("block_rows", &block_rows, "problem"_a, "global_num_tokens"_a);
}

}  // namespace megamoe::python
