#pragma once

#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/verbs.hpp"

namespace megamoe::cli {

struct Result {
  int status;
  std::string out, err;
};

/// Runs a command line in this process.
inline Result megamoe(const Arguments& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  Io io{.out = out, .err = err};
  const int status = dispatch(arguments, io);
  return {status, out.str(), err.str()};
}

inline Arguments joined(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// What a command prints as JSON; it must be done without a word on standard error.
inline nlohmann::json json_of(const Arguments& arguments) {
  const Result result = megamoe(arguments);
  EXPECT_EQ(result.status, kDone) << result.err << result.out;
  EXPECT_EQ(result.err, "");
  return nlohmann::json::parse(result.out);
}

/// The one line of a command that must be refused.
inline std::string refusal_of(const Arguments& arguments) {
  const Result result = megamoe(arguments);
  EXPECT_EQ(result.status, kBadUsage) << result.out;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  return result.err;
}

}  // namespace megamoe::cli
