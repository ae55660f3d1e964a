#include <algorithm>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "config/kernel_config.hpp"
#include "host/dispatch.hpp"
#include "host/layer_state.hpp"
#include "layout/elements.hpp"
#include "python/binding/bind.hpp"

namespace megamoe::python {
namespace {

Stream as_stream(std::uintptr_t value) { return reinterpret_cast<Stream>(value); }

/// A view of memory that the group owns: NumPy in host memory, else an object with `__dlpack__`.
template <class T>
nb::object view_of(const GroupPointer& group, Place place, void* data,
                   std::vector<std::size_t> shape) {
  auto* held = new GroupPointer(group);
  nb::capsule owner(held, [](void* p) noexcept { delete static_cast<GroupPointer*>(p); });
  if (place.device < 0) {
    return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner));
  }
  return nb::cast(nb::ndarray<T>(data, shape.size(), shape.data(), owner, nullptr, nb::dtype<T>(),
                                 nb::device::cuda::value, place.device));
}

nb::tuple inputs(const GroupPointer& g, int i) {
  const Problem& p = g->problem();
  const Place place = g->places.at(static_cast<std::size_t>(i));
  const InputViews views = g->group->layer(i).inputs();
  const auto rows = static_cast<std::size_t>(p.max_tokens_per_rank);
  const auto hidden = static_cast<std::size_t>(p.hidden);
  const auto slots = static_cast<std::size_t>(p.top_k);
  const nb::object x = p.precision == Precision::bf16
                           ? view_of<std::uint16_t>(g, place, views.x, {rows, hidden})
                           : view_of<std::uint8_t>(g, place, views.x, {rows, hidden});
  nb::object scales = nb::none();
  if (p.precision == Precision::mxfp8_mxfp4)
    scales = view_of<std::uint8_t>(g, place, views.x_scales, {rows, hidden / 32});
  else if (p.precision != Precision::bf16)
    scales = view_of<float>(g, place, views.x_scales, {rows, hidden / 128});
  return nb::make_tuple(x, scales, view_of<std::int64_t>(g, place, views.topk_idx, {rows, slots}),
                        view_of<float>(g, place, views.topk_weights, {rows, slots}));
}

nb::object region(const GroupPointer& g, int i) {
  const LayerState& s = LayerAccess::state(g->group->layer(i));
  return view_of<std::uint8_t>(g, g->places.at(static_cast<std::size_t>(i)),
                               s.memory.peer(static_cast<protocol::u32>(s.rank)),
                               {s.memory.symmetric().bytes});
}

std::vector<std::uintptr_t> region_addresses(SharedGroup& g, int i) {
  const LayerState& s = LayerAccess::state(g.group->layer(i));
  std::vector<std::uintptr_t> addresses;
  for (protocol::u32 r = 0; r < static_cast<protocol::u32>(s.problem.ranks); ++r)
    addresses.push_back(reinterpret_cast<std::uintptr_t>(s.memory.peer(r)));
  return addresses;
}

void stage(SharedGroup& g, int i, nb::handle hidden_states, nb::handle topk_idx,
           nb::handle topk_weights, float routed_scaling, std::uintptr_t stream) {
  const Problem& p = g.problem();
  const Place place = g.places.at(static_cast<std::size_t>(i));
  const std::vector<std::int64_t> found = shape_of(hidden_states, "hidden_states");
  const std::int64_t rows = found.empty() ? 0 : found[0];
  const Tensor x(hidden_states, "hidden_states", Element::bf16, {rows, p.hidden}, place);
  const Tensor weights(topk_weights, "topk_weights", Element::f32, {rows, p.top_k}, place);
  const bool narrow = is_int32(topk_idx, "topk_idx");
  const Tensor ids(topk_idx, "topk_idx", narrow ? Element::i32 : Element::i64, {rows, p.top_k},
                   place);
  const auto slots = static_cast<std::size_t>(rows * p.top_k);
  const std::span<const float> w(weights.as<float>(), slots);
  const auto tokens = static_cast<int>(std::min<std::int64_t>(rows, INT32_MAX));
  Layer& layer = g.group->layer(i);
  const nb::gil_scoped_release unlocked;
  if (narrow) {
    layer.stage(x.as<std::uint16_t>(), std::span(ids.as<std::int32_t>(), slots), w, tokens,
                routed_scaling, as_stream(stream));
  } else {
    layer.stage(x.as<std::uint16_t>(), std::span(ids.as<std::int64_t>(), slots), w, tokens,
                routed_scaling, as_stream(stream));
  }
}

/// What one rank brings to a call, with the arrays that hold it.
struct HeldCall {
  Tensor y;
  RankCall call;
};

void check_places(SharedGroup& g, int i, const Weights& weights, const Weights* shared) {
  const Place place = g.places.at(static_cast<std::size_t>(i));
  for (const Weights* w : {&weights, shared}) {
    if (w != nullptr && w->place != place) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("weights are on device {}, rank {} is on device {} (-1: host memory)",
                              w->place.device, g.group->layer(i).rank(), place.device));
    }
  }
}

RankCall rank_call(std::uint16_t* y, std::int64_t rows, const Weights& weights,
                   const Weights* shared) {
  return {.y = y,
          .num_tokens = static_cast<int>(std::min<std::int64_t>(rows, INT32_MAX)),
          .weights = &weights.tensors,
          .shared = shared == nullptr ? nullptr : &shared->tensors};
}

HeldCall held_call(SharedGroup& g, int i, nb::handle y, const Weights& weights,
                   const Weights* shared) {
  const Place place = g.places.at(static_cast<std::size_t>(i));
  const std::vector<std::int64_t> found = shape_of(y, "y");
  const std::int64_t rows = found.empty() ? 0 : found[0];
  check_places(g, i, weights, shared);
  HeldCall held{Tensor(y, "y", Element::bf16, {rows, g.problem().hidden}, place, true), {}};
  held.call = rank_call(held.y.writable_as<std::uint16_t>(), rows, weights, shared);
  return held;
}

/// The library's options, with the configuration that they may point to.
struct HeldOptions {
  ForwardOptions options;
  std::optional<KernelConfig> config;
};

void fill(HeldOptions& held, const Problem& p, const CallOptions& given, std::int64_t* stats) {
  held.options.global_num_tokens = given.global_num_tokens;
  held.options.num_sms = given.num_sms;
  held.options.reserved_sms = given.reserved_sms;
  held.options.deadline = seconds(given.deadline_s);
  if (given.first_deadline_s) held.options.first_deadline = seconds(*given.first_deadline_s);
  held.options.fast_math = given.fast_math;
  held.options.recv_stats = stats;
  if (given.block_rows != 0) {
    held.config = config_for_block_rows(p, given.block_rows);
    held.options.config = &*held.config;
  }
}

/// Gives the local ranks the activation and precision of one call, and takes them back. Precisions
/// are exchanged in host memory only, where kernels of all of them exist, and only between those
/// with the same buffers.
class CallProblem {
 public:
  CallProblem(SharedGroup& g, std::vector<int> layers, const CallOptions& given) {
    const Problem& own = g.problem();
    if (given.activation.value_or(own.activation) == own.activation &&
        given.precision.value_or(own.precision) == own.precision)
      return;
    const Problem wanted = problem_of_call(own, given);
    const bool bytes_differ =
        activation_row_bytes(own.precision, 128) != activation_row_bytes(wanted.precision, 128) ||
        scale_channels(own.precision) != scale_channels(wanted.precision);
    for (const int i : layers) {
      LayerState& state = LayerAccess::state(g.group->layer(i));
      const bool on_gpu = g.places.at(static_cast<std::size_t>(i)).device >= 0;
      if (wanted.precision != own.precision && (on_gpu || bytes_differ)) {
        throw Error(on_gpu ? ErrorCode::unsupported : ErrorCode::invalid_argument,
                    fmt::format("precision = {} in a group of {}{}", name(wanted.precision),
                                name(own.precision), on_gpu ? "; GPUs run fp8" : ""));
      }
      if (wanted.activation.kind != own.activation.kind && on_gpu) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("activation = {}; GPUs run swiglu", name(wanted.activation.kind)));
      }
      if (state.in_flight) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("rank {} already has a call in flight on this Layer", state.rank));
      }
      changed_.emplace_back(&state, state.problem);
      state.problem.activation = wanted.activation;
      state.problem.precision = wanted.precision;
    }
  }
  CallProblem(const CallProblem&) = delete;
  CallProblem& operator=(const CallProblem&) = delete;
  ~CallProblem() {
    for (auto& [state, problem] : changed_) state->problem = problem;
  }

 private:
  std::vector<std::pair<LayerState*, Problem>> changed_;
};

std::int64_t* stats_pointer(const GroupPointer& g, int i, nb::handle array, Tensor& held,
                            std::vector<std::int64_t> shape) {
  if (array.is_none()) return nullptr;
  held = Tensor(array, "recv_stats", Element::i64, std::move(shape),
                g->places.at(static_cast<std::size_t>(i)), true);
  return held.writable_as<std::int64_t>();
}

/// Whether a call on this stream has become part of a graph, which then needs what it was given.
bool captured(SharedGroup& g, int i, std::uintptr_t stream) {
  return LayerAccess::state(g.group->layer(i)).backend->is_capturing(as_stream(stream));
}

bool forward(const GroupPointer& g, int i, nb::handle y, const Weights& weights,
             const Weights* shared, const CallOptions& given, nb::handle recv_stats,
             std::uintptr_t stream) {
  const HeldCall held = held_call(*g, i, y, weights, shared);
  Tensor stats;
  HeldOptions options;
  fill(options, g->problem(), given,
       stats_pointer(g, i, recv_stats, stats, {g->problem().experts_per_rank()}));
  const GroupPointer alive = g;
  const nb::gil_scoped_release unlocked;
  const CallProblem problem(*g, {i}, given);
  alive->group->layer(i).forward(held.call.y, held.call.num_tokens, *held.call.weights,
                                 held.call.shared, options.options, as_stream(stream));
  return captured(*g, i, stream);
}

/// forward with addresses that the package has checked: y is BF16 [rows, hidden], contiguous, at
/// the rank's place; stats int64 [experts per rank], or 0. Arrays through DLPack take longer than
/// the rest of a call.
bool forward_at(const GroupPointer& g, int i, std::uintptr_t y, std::int64_t rows,
                const Weights& weights, const Weights* shared, const CallOptions& given,
                std::uintptr_t stats, std::uintptr_t stream) {
  check_places(*g, i, weights, shared);
  const RankCall call = rank_call(reinterpret_cast<std::uint16_t*>(y), rows, weights, shared);
  HeldOptions options;
  fill(options, g->problem(), given, reinterpret_cast<std::int64_t*>(stats));
  const GroupPointer alive = g;
  const nb::gil_scoped_release unlocked;
  const CallProblem problem(*g, {i}, given);
  alive->group->layer(i).forward(call.y, call.num_tokens, *call.weights, call.shared,
                                 options.options, as_stream(stream));
  return captured(*g, i, stream);
}

bool forward_all(const GroupPointer& g, const nb::list& y, const std::vector<Weights*>& weights,
                 const std::vector<Weights*>& shared, const CallOptions& given,
                 nb::handle recv_stats, const std::vector<std::uintptr_t>& streams) {
  const auto ranks = static_cast<std::size_t>(g->group->num_local_ranks());
  if (y.size() != ranks || weights.size() != ranks || (!shared.empty() && shared.size() != ranks)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} y, {} weights, {} shared weights for {} local ranks", y.size(),
                            weights.size(), shared.size(), ranks));
  }
  std::vector<HeldCall> held;
  std::vector<RankCall> calls;
  std::vector<int> layers;
  for (std::size_t i = 0; i < ranks; ++i) {
    layers.push_back(static_cast<int>(i));
    held.push_back(
        held_call(*g, layers.back(), y[i], *weights[i], shared.empty() ? nullptr : shared[i]));
    calls.push_back(held.back().call);
  }
  Tensor stats;
  HeldOptions options;
  fill(options, g->problem(), given,
       stats_pointer(g, 0, recv_stats, stats,
                     {static_cast<std::int64_t>(ranks), g->problem().experts_per_rank()}));
  std::vector<Stream> of;
  for (const std::uintptr_t value : streams) of.push_back(as_stream(value));
  const GroupPointer alive = g;
  const nb::gil_scoped_release unlocked;
  const CallProblem problem(*g, layers, given);
  alive->group->forward(calls, options.options, of);
  return std::any_of(streams.begin(), streams.end(),
                     [&](std::uintptr_t stream) { return captured(*g, 0, stream); });
}

nb::dict check(SharedGroup& g, int i) {
  const CallReport report = g.group->layer(i).check();
  nb::dict out;
  out["epoch"] = report.epoch;
  out["config"] = report.config;
  out["rows_received"] = report.rows_received;
  out["bad_id"] = nb::none();
  if (report.bad_id)
    out["bad_id"] = nb::make_tuple(report.bad_id->token, report.bad_id->slot, report.bad_id->value);
  return out;
}

nb::tuple memory_report(SharedGroup& g, int i) {
  const MemoryReport report = g.group->layer(i).memory_report();
  return nb::make_tuple(report.symmetric_bytes, report.local_bytes, report.map);
}

nb::list dispatch(const GroupPointer& g, const std::vector<int>& num_tokens,
                  const CallOptions& given, const std::vector<std::uintptr_t>& streams) {
  if (num_tokens.size() != static_cast<std::size_t>(g->group->num_local_ranks())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("num_tokens has {} values for {} local ranks", num_tokens.size(),
                            g->group->num_local_ranks()));
  }
  HeldOptions options;
  fill(options, g->problem(), given, nullptr);
  std::vector<Stream> of;
  for (const std::uintptr_t value : streams) of.push_back(as_stream(value));
  std::vector<DispatchedRows> ranks;
  {
    const nb::gil_scoped_release unlocked;
    ranks = run_dispatch(*g->group, num_tokens, options.options, of);
  }
  nb::list out;
  for (DispatchedRows& rank : ranks) {
    nb::dict rows;
    const std::size_t n = rank.meta.size(), k = rank.rows_of.size();
    const std::size_t x = rank.x.size(), scales = rank.x_scales.size();
    std::vector<std::uint8_t> codes(x), scale_bytes(scales);
    std::transform(rank.x.begin(), rank.x.end(), codes.begin(),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    std::transform(rank.x_scales.begin(), rank.x_scales.end(), scale_bytes.begin(),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    rows["rows_of"] = new_array(std::move(rank.rows_of), {k});
    rows["x"] = new_array(std::move(codes), {n, n == 0 ? 0 : x / n});
    rows["x_scales"] = new_array(std::move(scale_bytes), {n, n == 0 ? 0 : scales / n});
    rows["meta"] = new_array(std::move(rank.meta), {n});
    rows["weights"] = new_array(std::move(rank.weights), {n});
    out.append(rows);
  }
  return out;
}

}  // namespace

void bind_layer(nb::class_<SharedGroup>& group) {
  using namespace nb::literals;
  group
      .def(
          "rank", [](SharedGroup& g, int i) { return g.group->layer(i).rank(); }, "local_rank"_a)
      .def("inputs", &inputs, "local_rank"_a)
      .def("region", &region, "local_rank"_a)
      .def("region_addresses", &region_addresses, "local_rank"_a)
      .def("stage", &stage, "local_rank"_a, "hidden_states"_a.none(), "topk_idx"_a.none(),
           "topk_weights"_a.none(), "routed_scaling"_a = 1.0F, "stream"_a = 0)
      .def("forward", &forward, "local_rank"_a, "y"_a.none(), "weights"_a, "shared"_a.none(),
           "options"_a, "recv_stats"_a.none(), "stream"_a = 0)
      .def("forward_at", &forward_at, "local_rank"_a, "y"_a, "rows"_a, "weights"_a,
           "shared"_a.none(), "options"_a, "stats"_a, "stream"_a)
      .def("forward_all", &forward_all, "y"_a, "weights"_a, "shared"_a, "options"_a,
           "recv_stats"_a.none(), "streams"_a)
      .def("check", &check, "local_rank"_a)
      .def(
          "synchronize_layer", [](SharedGroup& g, int i) { g.group->layer(i).synchronize(); },
          "local_rank"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "set_deadlines",
          [](SharedGroup& g, int i, double deadline, double first_deadline) {
            g.group->layer(i).set_deadlines(seconds(deadline), seconds(first_deadline));
          },
          "local_rank"_a, "deadline"_a, "first_deadline"_a)
      .def(
          "abort", [](SharedGroup& g, int i) { g.group->layer(i).abort(); }, "local_rank"_a)
      .def("memory_report", &memory_report, "local_rank"_a)
      .def("dispatch", &dispatch, "num_tokens"_a, "options"_a,
           "streams"_a = std::vector<std::uintptr_t>{});
}

}  // namespace megamoe::python
