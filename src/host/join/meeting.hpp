#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megamoe/symmetric_memory.hpp"

namespace megamoe::join {

/// How the processes of a group reach each other while they join and reset, one rank each.
class Meeting {
 public:
  virtual ~Meeting() = default;
  /// Collective: the bytes of all ranks. Throws Error(fault) naming the ranks that did not come
  /// within the deadline, or have ended. The next step may be tried after that.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
};

/// Joins the meeting that the options describe. Throws Error(invalid_argument) naming a bad option.
std::unique_ptr<Meeting> meet(const JoinOptions& options);

std::unique_ptr<Meeting> meet_in_shared_memory(const JoinOptions& options);
std::unique_ptr<Meeting> meet_over_tcp(const JoinOptions& options);

/// "ranks 1, 3 of 4 did not come to step 2 of joining within 300 ms".
std::string missing_text(const std::vector<int>& missing, const JoinOptions& options,
                         unsigned step);

/// A name that no other group has: 128 random bits in hexadecimal.
std::string random_name();

}  // namespace megamoe::join
