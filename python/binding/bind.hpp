#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megamoe/megamoe.hpp"
#include "python/binding/tensor.hpp"

// What the parts of the extension module share.

namespace megamoe::python {

/// Expert weights with the arrays that hold them.
struct Weights {
  ExpertTensors tensors;
  std::vector<Tensor> held;  ///< what `tensors` points into
  Place place;
};

/// A Group with where its ranks' arrays are. Layers share it, so that it outlives their views.
struct SharedGroup {
  std::unique_ptr<Group> group;
  std::vector<Place> places;  ///< of each local rank

  [[nodiscard]] const Problem& problem() const { return group->problem(); }
};
using GroupPointer = std::shared_ptr<SharedGroup>;

/// ForwardOptions as Python gives them.
struct CallOptions {
  std::optional<long> global_num_tokens;
  int num_sms = 0;
  std::optional<int> reserved_sms;
  double deadline_s = 30;
  std::optional<double> first_deadline_s;
  bool fast_math = false;
  int block_rows = 0;  ///< 0: chosen by the library
  /// Other activation than the group's for this call; every rank must give the same.
  std::optional<Activation> activation;
  /// The same for the precision of the weights, where both have the same buffers.
  std::optional<Precision> precision;
};

/// Seconds as the library counts them; what no clock counts becomes the longest time.
std::chrono::nanoseconds seconds(double value);
Precision precision_named(const std::string& name);
/// Problem and options of a call together, as one rank sees them.
Problem problem_of_call(const Problem& problem, const CallOptions& options);

void bind_problem(nb::module_& module);
void bind_weights(nb::module_& module);
void bind_group(nb::module_& module);
void bind_layer(nb::class_<SharedGroup>& group);
void bind_reference(nb::module_& module);
void bind_checkpoint(nb::module_& module);

}  // namespace megamoe::python
