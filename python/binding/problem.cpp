#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "layout/symmetric_layout.hpp"
#include "python/binding/bind.hpp"

namespace megamoe::python {
namespace {

constexpr Precision kPrecisions[] = {Precision::fp8, Precision::bf16, Precision::mxfp4,
                                     Precision::mxfp8_mxfp4};
constexpr ActivationKind kKinds[] = {ActivationKind::swiglu, ActivationKind::swiglu_oai,
                                     ActivationKind::situ};

template <class Value, std::size_t N>
Value named(const Value (&values)[N], const std::string& text, const char* what) {
  std::string known;
  for (const Value value : values) {
    if (text == name(value)) return value;
    known += known.empty() ? "" : ", ";
    known += name(value);
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("{} = '{}'; known: {}", what, text, known));
}

Activation make_activation(const std::string& kind, float clamp, float alpha, float up_bias,
                           float beta, float linear_beta) {
  return {.kind = named(kKinds, kind, "kind"),
          .clamp = clamp,
          .alpha = alpha,
          .up_bias = up_bias,
          .beta = beta,
          .linear_beta = linear_beta};
}

/// Bytes of one rank's buffers, and where the views of its input lie.
nb::dict layout(const Problem& problem) {
  const std::string reason = why_invalid(problem);
  if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
  const SymmetricLayout l = symmetric_layout(problem);
  nb::dict offsets;
  offsets["bytes"] = l.bytes;
  offsets["x"] = l.x;
  offsets["x_scales"] = l.x_scales;
  offsets["topk_idx"] = l.topk_idx;
  offsets["topk_weights"] = l.topk_weights;
  return offsets;
}

void bind_activation(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Activation>(
      module, "Activation",
      "The gated activation between the two expert matrices; g is the gate, u "
      "the up projection, c the clamp (infinite: none).\n\n"
      "swiglu: silu(min(g, c)) * clamp(u, -c, c). swiglu-oai: g' * sigmoid(alpha "
      "* g') * (u' + up_bias) with both clamped. situ: beta * tanh(g / beta) * "
      "sigmoid(g) * linear_beta * tanh(u / linear_beta).")
      .def(
          "__init__",
          [](Activation* self, const std::string& kind, float clamp, float alpha, float up_bias,
             float beta, float linear_beta) {
            new (self) Activation(make_activation(kind, clamp, alpha, up_bias, beta, linear_beta));
          },
          "kind"_a = "swiglu", nb::kw_only(), "clamp"_a = Activation::kNone, "alpha"_a = 1.0F,
          "up_bias"_a = 0.0F, "beta"_a = 1.0F, "linear_beta"_a = Activation::kNone)
      .def_prop_ro("kind", [](const Activation& a) { return name(a.kind); })
      .def_ro("clamp", &Activation::clamp)
      .def_ro("alpha", &Activation::alpha)
      .def_ro("up_bias", &Activation::up_bias)
      .def_ro("beta", &Activation::beta)
      .def_ro("linear_beta", &Activation::linear_beta)
      .def("__eq__", [](const Activation& a, const Activation& b) { return a == b; })
      .def("__hash__", [](const Activation& a) {
        return nb::hash(
            nb::make_tuple(name(a.kind), a.clamp, a.alpha, a.up_bias, a.beta, a.linear_beta));
      });
}

}  // namespace

Precision precision_named(const std::string& text) { return named(kPrecisions, text, "precision"); }

void bind_problem(nb::module_& module) {
  using namespace nb::literals;
  bind_activation(module);
  nb::class_<Problem>(
      module, "Problem",
      "Everything that sizes and shapes one expert-parallel layer; the same on "
      "every rank.\n\n"
      "experts: routed experts of all ranks, a multiple of ranks. top_k: slots per "
      "token. hidden, intermediate: multiples of 128. max_tokens_per_rank: the most "
      "tokens that one rank brings to one call. precision: fp8, bf16, mxfp4 or "
      "mxfp8_mxfp4. shared_experts: experts that every token visits. Raises Error "
      "for what no layer can run.")
      .def(
          "__init__",
          [](Problem* self, int ranks, int experts, int top_k, int hidden, int intermediate,
             int max_tokens_per_rank, const std::string& precision, const Activation& activation,
             int shared_experts) {
            const Problem problem{ranks,
                                  experts,
                                  top_k,
                                  hidden,
                                  intermediate,
                                  max_tokens_per_rank,
                                  precision_named(precision),
                                  activation,
                                  shared_experts};
            const std::string reason = why_invalid(problem);
            if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
            new (self) Problem(problem);
          },
          nb::kw_only(), "ranks"_a = 1, "experts"_a, "top_k"_a, "hidden"_a, "intermediate"_a,
          "max_tokens_per_rank"_a, "precision"_a = "fp8", "activation"_a = Activation{},
          "shared_experts"_a = 0)
      .def_ro("ranks", &Problem::ranks)
      .def_ro("experts", &Problem::experts)
      .def_ro("top_k", &Problem::top_k)
      .def_ro("hidden", &Problem::hidden)
      .def_ro("intermediate", &Problem::intermediate)
      .def_ro("max_tokens_per_rank", &Problem::max_tokens_per_rank)
      .def_prop_ro("precision", [](const Problem& p) { return name(p.precision); })
      .def_ro("activation", &Problem::activation)
      .def_ro("shared_experts", &Problem::shared_experts)
      .def_prop_ro("experts_per_rank", &Problem::experts_per_rank)
      .def("__eq__", [](const Problem& a, const Problem& b) { return a == b; })
      .def("__repr__", [](const Problem& p) {
        return fmt::format(
            "Problem(ranks={}, experts={}, top_k={}, hidden={}, intermediate={}, "
            "max_tokens_per_rank={}, precision='{}', shared_experts={})",
            p.ranks, p.experts, p.top_k, p.hidden, p.intermediate, p.max_tokens_per_rank,
            name(p.precision), p.shared_experts);
      });
  module.def("layout", &layout, "problem"_a);
}

}  // namespace megamoe::python
