#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "python/binding/bind.hpp"

namespace megamoe::python {
namespace {

struct Arrays {
  nb::object w1, w1_scales, w2, w2_scales, b1, b2;
};

/// Sizes as the shapes of w1 and w2 state them.
ExpertTensors sizes_of(Precision precision, const Arrays& arrays) {
  const std::vector<std::int64_t> w1 = shape_of(arrays.w1, "w1");
  if (w1.size() != 3 || w1[1] % 2 != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("w1 has {} dimensions, {} rows; needed: [experts, 2 x intermediate, "
                            "hidden]",
                            w1.size(), w1.size() > 1 ? w1[1] : 0));
  }
  const bool packed = precision == Precision::mxfp4 || precision == Precision::mxfp8_mxfp4;
  ExpertTensors sizes;
  sizes.precision = precision;
  sizes.num_experts = static_cast<int>(w1[0]);
  sizes.intermediate = static_cast<int>(w1[1] / 2);
  sizes.hidden = static_cast<int>(packed ? 2 * w1[2] : w1[2]);
  if (sizes.hidden % 128 != 0 || sizes.intermediate % 128 != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("w1 gives hidden = {} and intermediate = {}; both must be multiples "
                            "of 128",
                            sizes.hidden, sizes.intermediate));
  }
  return sizes;
}

class Builder {
 public:
  Builder(Precision precision, const Arrays& arrays) {
    weights_.tensors = sizes_of(precision, arrays);
    weights_.place = place_of(arrays.w1, "w1");
  }

  const std::byte* take(const nb::object& array, const char* name, Element element,
                        std::vector<std::int64_t> matrix) {
    if (array.is_none()) return nullptr;
    matrix.insert(matrix.begin(), weights_.tensors.num_experts);
    weights_.held.emplace_back(array, name, element, std::move(matrix), weights_.place);
    return weights_.held.back().bytes();
  }

  Weights build(const Arrays& arrays) {
    ExpertTensors& t = weights_.tensors;
    const std::int64_t h = t.hidden, i = t.intermediate;
    switch (t.precision) {
      case Precision::bf16:
        t.w1 = take(arrays.w1, "w1", Element::bf16, {2 * i, h});
        t.w2 = take(arrays.w2, "w2", Element::bf16, {h, i});
        if (!arrays.w1_scales.is_none() || !arrays.w2_scales.is_none())
          throw Error(ErrorCode::invalid_argument, "w1_scales or w2_scales given; bf16 has none");
        break;
      case Precision::fp8:
        t.w1 = take(arrays.w1, "w1", Element::code8, {2 * i, h});
        t.w1_scales = take(arrays.w1_scales, "w1_scales", Element::f32, {2 * i / 128, h / 128});
        t.w2 = take(arrays.w2, "w2", Element::code8, {h, i});
        t.w2_scales = take(arrays.w2_scales, "w2_scales", Element::f32, {h / 128, i / 128});
        break;
      case Precision::mxfp4:
      case Precision::mxfp8_mxfp4:
        t.w1 = take(arrays.w1, "w1", Element::code8, {2 * i, h / 2});
        t.w1_scales = take(arrays.w1_scales, "w1_scales", Element::code8, {2 * i, h / 32});
        t.w2 = take(arrays.w2, "w2", Element::code8, {h, i / 2});
        t.w2_scales = take(arrays.w2_scales, "w2_scales", Element::code8, {h, i / 32});
        break;
    }
    if (t.w2 == nullptr) throw Error(ErrorCode::invalid_argument, "w2 is None; an array is needed");
    if (t.precision != Precision::bf16 && (t.w1_scales == nullptr || t.w2_scales == nullptr)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("w1_scales or w2_scales is None; {} needs both", name(t.precision)));
    }
    t.b1 = reinterpret_cast<const float*>(take(arrays.b1, "b1", Element::f32, {2 * i}));
    t.b2 = reinterpret_cast<const float*>(take(arrays.b2, "b2", Element::f32, {h}));
    return std::move(weights_);
  }

 private:
  Weights weights_;
};

/// One array's rows of all experts from a checkpoint's order into the kernel's; `to` may be `from`.
void interleave(nb::handle from, nb::handle to, int intermediate) {
  const std::vector<std::int64_t> shape = shape_of(from, "from");
  if (shape.size() != 3 || intermediate % 8 != 0 || shape[1] != 2 * std::int64_t{intermediate}) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("[{} dimensions, {} rows] to interleave; needed: [experts, {}, bytes]",
                            shape.size(), shape.size() > 1 ? shape[1] : 0, 2 * intermediate));
  }
  const Tensor source(from, "from", Element::code8, shape, {});
  const Tensor target(to, "to", Element::code8, shape, {}, true);
  const nb::gil_scoped_release unlocked;
  const auto row_bytes = static_cast<std::size_t>(shape[2]);
  const std::size_t expert = static_cast<std::size_t>(shape[1]) * row_bytes;
  for (std::size_t e = 0; e < static_cast<std::size_t>(shape[0]); ++e) {
    interleave_rows(source.bytes() + e * expert, target.writable_as<std::byte>() + e * expert,
                    intermediate, row_bytes);
  }
}

}  // namespace

void bind_weights(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Weights>(module, "Weights")
      .def(
          "__init__",
          [](Weights* self, const std::string& precision, nb::object w1, nb::object w2,
             nb::object w1_scales, nb::object w2_scales, nb::object b1, nb::object b2) {
            const Arrays arrays{w1, w1_scales, w2, w2_scales, b1, b2};
            new (self) Weights(Builder(precision_named(precision), arrays).build(arrays));
          },
          "precision"_a, "w1"_a.none(), "w2"_a.none(), "w1_scales"_a.none() = nb::none(),
          "w2_scales"_a.none() = nb::none(), "b1"_a.none() = nb::none(), "b2"_a.none() = nb::none())
      .def_prop_ro("precision", [](const Weights& w) { return name(w.tensors.precision); })
      .def_prop_ro("num_experts", [](const Weights& w) { return w.tensors.num_experts; })
      .def_prop_ro("hidden", [](const Weights& w) { return w.tensors.hidden; })
      .def_prop_ro("intermediate", [](const Weights& w) { return w.tensors.intermediate; });
  module.def("array_key", &array_key, "arrays"_a);
  module.def("interleave", &interleave, "from_rows"_a, "to_rows"_a, "intermediate"_a);
}

}  // namespace megamoe::python
