#include "sim/model/parameters.hpp"

namespace megamoe::sim::model {
namespace {

int choose(const Parameters& p, Pattern pattern, int call, int rank, int token, u64 bits) {
  switch (pattern) {
    case Pattern::idle:
      return -1;
    case Pattern::all_to_0:
      return 0;
    case Pattern::to_next:
      return (rank + 1) % p.ranks;
    case Pattern::to_self:
      return rank;
    case Pattern::alternating:
      if (call % 2 == 1) return rank == 0 ? 0 : -1;
      return call / 2 % p.ranks;
    case Pattern::spread:
      return token % p.ranks;
    case Pattern::back_and_forth:
      // Rank 0 alone has a token: to rank 1, to itself, to rank 1, ...
      return rank == 0 && token == 0 ? call % 2 : -1;
    case Pattern::random:
      return static_cast<int>(bits % static_cast<u64>(p.ranks + 1)) - 1;
  }
  return -1;
}

}  // namespace

const char* name(Pattern pattern) {
  static constexpr const char* kNames[kPatterns] = {
      "idle",        "all to rank 0", "to the next",    "to itself",
      "alternating", "spread",        "back and forth", "random"};
  return kNames[static_cast<int>(pattern)];
}

Routing::Routing(const Parameters& p, Pattern pattern, u64 seed) {
  Random random(seed);
  for (int call = 1; call <= p.calls; ++call) {
    for (int rank = 0; rank < p.ranks; ++rank) {
      for (int token = 0; token < p.tokens; ++token)
        dst[call][rank][token] = choose(p, pattern, call, rank, token, random.bits() >> 20U);
    }
    for (int to = 0; to < p.ranks; ++to) {
      for (int src = 0; src < p.ranks; ++src) {
        for (int token = 0; token < p.tokens; ++token) {
          if (dst[call][src][token] != to) continue;
          block[call][to][blocks[call][to]++] = {static_cast<u8>(src), static_cast<u8>(token)};
          ++sent[call][src][to];
        }
      }
    }
  }
}

}  // namespace megamoe::sim::model
