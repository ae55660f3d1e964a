#include "host/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "megamoe/error.hpp"

namespace megamoe {

std::optional<int> environment_integer(const char* variable, int low, int high) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return {};
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || stop != end || value < low || value > high) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} = '{}' is no integer of {}..{}", variable, text, low, high));
  }
  return value;
}

bool environment_flag(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != '\0' && std::strcmp(text, "0") != 0;
}

std::optional<int> environment_reserved_sms() {
  constexpr int kMost = 4096;
  const auto own = environment_integer("MEGAMOE_RESERVED_SMS", 0, kMost);
  return own ? own : environment_integer("SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS", 0, kMost);
}

int environment_ranks_per_gpu() {
  constexpr int kMost = 8;
  return environment_integer("MEGAMOE_RANKS_PER_GPU", 1, kMost).value_or(1);
}

}  // namespace megamoe
