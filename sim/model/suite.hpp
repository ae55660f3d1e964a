#pragma once

namespace megamoe::sim::model {

/// Runs the model's cases and prints a line for each: the protocol must be without fault, each
/// variant must fail for at least one routing.
struct SuiteCounts {
  int as_it_should = 0;
  int not_so = 0;
};
SuiteCounts run_suite();

}  // namespace megamoe::sim::model
