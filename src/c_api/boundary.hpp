#pragma once

#include <string>
#include <utility>

#include "megamoe/error.hpp"
#include "megamoe/megamoe.h"

// The border between C++ and its callers in C: the one place where exceptions end.

namespace megamoe::c_api {

/// Inside a handler of any exception: keeps its words for megamoe_last_error and gives its status.
megamoe_status status_of_current_exception() noexcept;

/// Runs one operation of the C interface.
template <class Operation>
megamoe_status guarded(Operation&& operation) noexcept {
  try {
    std::forward<Operation>(operation)();
    return MEGAMOE_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

[[noreturn]] void refuse(const std::string& reason);

/// The argument, which must not be null.
template <class T>
T& required(T* argument, const char* name) {
  if (argument == nullptr) refuse(std::string(name) + " is NULL");
  return *argument;
}

}  // namespace megamoe::c_api
