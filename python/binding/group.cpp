#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "config/launch_sms.hpp"
#include "host/devices.hpp"
#include "host/environment.hpp"
#include "host/layer_state.hpp"
#include "python/binding/bind.hpp"

namespace megamoe::python {
namespace {

/// What joins processes: see JoinOptions, and SymmetricMemory::pointers for the last two.
struct Joining {
  std::string name;
  int rank = 0;
  double deadline_s = 60;
  std::string address;
  int port = 0;
  std::optional<nb::callable> all_gather;
  std::vector<std::uintptr_t> addresses;
  std::size_t bytes = 0;
};

/// The caller's function; the thread that joins holds no GIL.
AllGather gather_of(const nb::callable& function) {
  const std::shared_ptr<nb::callable> held(new nb::callable(function), [](nb::callable* f) {
    const nb::gil_scoped_acquire locked;
    delete f;
  });
  return [held](const std::string& text) {
    const nb::gil_scoped_acquire locked;
    std::vector<std::string> all;
    for (nb::handle item : (*held)(nb::bytes(text.data(), text.size()))) {
      const nb::bytes bytes = nb::cast<nb::bytes>(item);
      all.emplace_back(bytes.c_str(), bytes.size());
    }
    return all;
  };
}

JoinOptions options_of(const Problem& problem, const Joining& joining) {
  JoinOptions options{.name = joining.name,
                      .ranks = problem.ranks,
                      .rank = joining.rank,
                      .deadline = seconds(joining.deadline_s),
                      .address = joining.address,
                      .port = joining.port};
  if (joining.all_gather) options.all_gather = gather_of(*joining.all_gather);
  return options;
}

std::unique_ptr<SymmetricMemory> make_memory(const Problem& problem, const std::string& kind,
                                             const std::vector<int>& devices,
                                             const Joining& joining, const JoinOptions& join) {
  const int device = devices.empty() ? -1 : devices[0];
  if (kind == "host") return SymmetricMemory::host(problem.ranks);
  if (kind == "host_virtual") return SymmetricMemory::host_virtual(problem.ranks);
  if (kind == "shared") return SymmetricMemory::shared(join);
  if (kind == "cuda_virtual") return SymmetricMemory::cuda_virtual(problem.ranks, device);
  if (kind == "cuda_peers") return SymmetricMemory::cuda_peers(devices);
  if (kind == "cuda_processes") return SymmetricMemory::cuda_processes(join, device);
  if (kind == "pointers") {
    std::vector<std::byte*> bases;
    for (const std::uintptr_t address : joining.addresses)
      bases.push_back(reinterpret_cast<std::byte*>(address));
    return SymmetricMemory::pointers(join, bases, joining.bytes, device);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("memory = '{}'; known: host, host_virtual, shared, cuda_virtual, "
                          "cuda_peers, cuda_processes, pointers",
                          kind));
}

GroupPointer make_group(const Problem& problem, const std::string& kind,
                        const std::vector<int>& devices, const Joining& joining) {
  const JoinOptions join = options_of(problem, joining);
  const nb::gil_scoped_release unlocked;  // joining other processes may take long
  auto memory = make_memory(problem, kind, devices, joining, join);
  const std::vector<int> gpus = memory->devices();
  auto shared = std::make_shared<SharedGroup>();
  shared->group = std::make_unique<Group>(problem, std::move(memory));
  for (int i = 0; i < shared->group->num_local_ranks(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    shared->places.push_back(gpus.empty() ? Place{} : Place{gpus[gpus.size() == 1 ? 0 : at]});
  }
  return shared;
}

}  // namespace

std::chrono::nanoseconds seconds(double value) {
  constexpr double kMost = 1e9;  // more than kMaxDeadline, far from what nanoseconds can hold
  if (!(value > 0)) return std::chrono::nanoseconds(0);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(value, kMost) * 1e9));
}

Problem problem_of_call(const Problem& problem, const CallOptions& options) {
  Problem p = problem;
  if (options.activation) p.activation = *options.activation;
  if (options.precision) p.precision = *options.precision;
  const std::string reason = why_invalid(p);
  if (!reason.empty()) throw Error(ErrorCode::invalid_argument, reason);
  return p;
}

void bind_group(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<CallOptions>(module, "CallOptions")
      .def(
          "__init__",
          [](CallOptions* self, std::optional<long> global_num_tokens, int num_sms,
             std::optional<int> reserved_sms, double deadline, std::optional<double> first_deadline,
             bool fast_math, int block_rows, std::optional<Activation> activation,
             std::optional<std::string> precision) {
            new (self) CallOptions{.global_num_tokens = global_num_tokens,
                                   .num_sms = num_sms,
                                   .reserved_sms = reserved_sms,
                                   .deadline_s = deadline,
                                   .first_deadline_s = first_deadline,
                                   .fast_math = fast_math,
                                   .block_rows = block_rows,
                                   .activation = activation,
                                   .precision = std::nullopt};
            if (precision) self->precision = precision_named(*precision);
          },
          nb::kw_only(), "global_num_tokens"_a.none() = nb::none(), "num_sms"_a = 0,
          "reserved_sms"_a.none() = nb::none(), "deadline"_a = 30.0,
          "first_deadline"_a.none() = nb::none(), "fast_math"_a = false, "block_rows"_a = 0,
          "activation"_a.none() = nb::none(), "precision"_a.none() = nb::none());
  nb::class_<Joining>(module, "Joining")
      .def(
          "__init__",
          [](Joining* self, const std::string& name, int rank, double deadline,
             const std::string& address, int port, std::optional<nb::callable> all_gather,
             const std::vector<std::uintptr_t>& addresses, std::size_t bytes) {
            new (self) Joining{name, rank, deadline, address, port, all_gather, addresses, bytes};
          },
          nb::kw_only(), "name"_a = "", "rank"_a = 0, "deadline"_a = 60.0, "address"_a = "",
          "port"_a = 0, "all_gather"_a.none() = nb::none(),
          "addresses"_a = std::vector<std::uintptr_t>{}, "bytes"_a = 0);
  nb::class_<SharedGroup> group(module, "Group");
  group.def(nb::new_(&make_group), "problem"_a, "memory"_a, "devices"_a, "joining"_a)
      .def_prop_ro("problem", &SharedGroup::problem)
      .def_prop_ro("num_local_ranks",
                   [](const SharedGroup& g) { return g.group->num_local_ranks(); })
      .def(
          "device", [](const SharedGroup& g, std::size_t i) { return g.places.at(i).device; },
          "local_rank"_a)
      .def(
          "synchronize", [](SharedGroup& g) { g.group->synchronize(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "reset", [](SharedGroup& g) { g.group->reset(); },
          nb::call_guard<nb::gil_scoped_release>());
  bind_layer(group);
  module.def("find_devices", [] {
    const Devices found = find_devices();
    return std::pair(found.usable, found.reason);
  });
  module.def("launch_sms", &launch_sms, "arch"_a, "physical"_a, "current"_a,
             "reserve"_a.none() = nb::none());
  module.def("environment_reserved_sms", &environment_reserved_sms);
}

}  // namespace megamoe::python
