#include "megamoe/checkpoint.hpp"

#include <cstring>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/binding/bind.hpp"

namespace megamoe::python {
namespace {

/// The bytes of a tensor as a NumPy array [shape]; None where there are none.
template <class T>
nb::object array_of(const std::vector<std::byte>& bytes, std::vector<std::size_t> shape) {
  if (bytes.empty()) return nb::none();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return new_array(std::move(values), std::move(shape));
}

nb::object array_of(std::vector<float>&& values, std::vector<std::size_t> shape) {
  if (values.empty()) return nb::none();
  return new_array(std::move(values), std::move(shape));
}

/// (precision, arrays by the names of Weights' parameters). Frees each tensor once it is copied.
nb::dict arrays_of(OwnedExperts& owned) {
  const auto e = static_cast<std::size_t>(owned.num_experts);
  const auto h = static_cast<std::size_t>(owned.hidden);
  const auto i = static_cast<std::size_t>(owned.intermediate);
  nb::dict out;
  const auto take = [&](const char* field, std::vector<std::byte>& bytes, auto element,
                        std::vector<std::size_t> shape) {
    out[field] = array_of<decltype(element)>(bytes, std::move(shape));
    bytes = {};
  };
  switch (owned.precision) {
    case Precision::bf16:
      take("w1", owned.w1, std::uint16_t{}, {e, 2 * i, h});
      take("w2", owned.w2, std::uint16_t{}, {e, h, i});
      break;
    case Precision::fp8:
      take("w1", owned.w1, std::uint8_t{}, {e, 2 * i, h});
      take("w2", owned.w2, std::uint8_t{}, {e, h, i});
      take("w1_scales", owned.w1_scales, float{}, {e, 2 * i / 128, h / 128});
      take("w2_scales", owned.w2_scales, float{}, {e, h / 128, i / 128});
      break;
    case Precision::mxfp4:
    case Precision::mxfp8_mxfp4:
      take("w1", owned.w1, std::uint8_t{}, {e, 2 * i, h / 2});
      take("w2", owned.w2, std::uint8_t{}, {e, h, i / 2});
      take("w1_scales", owned.w1_scales, std::uint8_t{}, {e, 2 * i, h / 32});
      take("w2_scales", owned.w2_scales, std::uint8_t{}, {e, h, i / 32});
      break;
  }
  out["b1"] = array_of(std::move(owned.b1), {e, 2 * i});
  out["b2"] = array_of(std::move(owned.b2), {e, h});
  out["precision"] = name(owned.precision);
  return out;
}

LoadOptions load_options(std::optional<std::string> precision, int ranks, int rank, bool pad,
                         bool shared, const std::optional<nb::callable>& progress) {
  LoadOptions options{
      .precision = {}, .ranks = ranks, .rank = rank, .pad = pad, .shared = shared, .progress = {}};
  if (precision) options.precision = precision_named(*precision);
  if (progress) {
    // The library copies its options without the GIL: only the pointer is counted there.
    options.progress = [call = std::make_shared<nb::callable>(*progress)](double part) {
      const nb::gil_scoped_acquire locked;
      (*call)(part);
    };
  }
  return options;
}

nb::dict load(const std::string& path, int layer, int ranks, int rank,
              std::optional<std::string> precision, bool pad, bool shared,
              std::optional<nb::callable> progress) {
  const LoadOptions options =
      load_options(std::move(precision), ranks, rank, pad, shared, progress);
  LoadedLayer loaded;
  {
    const nb::gil_scoped_release unlocked;
    loaded = load_layer(path, layer, options);
  }
  nb::dict out;
  out["family"] = loaded.family;
  out["layer"] = loaded.layer;
  out["hidden"] = loaded.hidden;
  out["intermediate"] = loaded.intermediate;
  out["experts"] = loaded.experts;
  out["top_k"] = loaded.top_k;
  out["first_expert"] = loaded.first_expert;
  out["activation"] = loaded.activation;
  out["routed_scaling"] = loaded.routed_scaling;
  out["routed"] = arrays_of(loaded.routed);
  out["shared"] = nb::none();
  if (loaded.shared) out["shared"] = arrays_of(*loaded.shared);
  return out;
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  using namespace nb::literals;
  module.def("load_layer", &load, "path"_a, "layer"_a, "ranks"_a = 1, "rank"_a = 0,
             "precision"_a.none() = nb::none(), "pad"_a = true, "shared"_a = true,
             "progress"_a.none() = nb::none());
}

}  // namespace megamoe::python
