#pragma once

#include <stdexcept>
#include <string>

#include "megamoe/export.h"

namespace megamoe {

/// What kind of failure an Error reports.
enum class ErrorCode {
  invalid_argument,  ///< a value given by the caller cannot be used; nothing was changed
  invalid_file,      ///< a checkpoint or input file is missing, truncated or malformed
  unsupported,       ///< valid, but this machine or this build cannot run it
  disagreement,      ///< ranks gave different problems, versions or layouts
  fault,             ///< a call did not finish: a peer was late, lost or wrong
  system,            ///< the operating system or the driver refused
};

/// The one exception type of the library. The message names the offending values.
class MEGAMOE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace megamoe
