#include "host/environment.hpp"

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "megamoe/error.hpp"
#include "megamoe/symmetric_memory.hpp"

namespace megamoe {
namespace {

constexpr int kMaxPort = 65535;

std::string needed(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0')
    throw Error(ErrorCode::invalid_argument, fmt::format("{} is not set", variable));
  return text;
}

int needed_integer(const char* variable, int low, int high) {
  needed(variable);
  return *environment_integer(variable, low, high);
}

}  // namespace

LauncherRank rank_from_environment() {
  LauncherRank rank;
  rank.join.ranks = needed_integer("WORLD_SIZE", 1, kMaxRanks);
  rank.join.rank = needed_integer("RANK", 0, rank.join.ranks - 1);
  rank.join.address = needed("MASTER_ADDR");
  const int master = needed_integer("MASTER_PORT", 1, kMaxPort);
  const int near = master + kPortOffset <= kMaxPort ? master + kPortOffset : master - kPortOffset;
  rank.join.port = environment_integer("MEGAMOE_PORT", 1, kMaxPort).value_or(near);
  rank.local_rank = environment_integer("LOCAL_RANK", 0, kMaxRanks - 1).value_or(rank.join.rank);
  return rank;
}

}  // namespace megamoe
