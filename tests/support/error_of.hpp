#pragma once

#include <string>

#include <gtest/gtest.h>

#include "megamoe/error.hpp"

namespace megamoe {

/// The message of the Error that `call` throws, which must have this code; fails the test when it
/// throws none.
template <class Call>
std::string error_of(Call call, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no Error";
  return {};
}

}  // namespace megamoe
