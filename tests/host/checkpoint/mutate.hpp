#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace megamoe {

/// A deterministic source of choices: the same seed gives the same inputs on every machine.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1dU;
  }
  /// 0 .. n - 1.
  std::size_t below(std::size_t n) { return n == 0 ? 0 : (next() >> 16) % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class Container>
  const auto& of(const Container& all) {
    return all[below(all.size())];
  }

 private:
  std::uint64_t state_;
};

/// Damages bytes: flips, cuts, copies, insertions.
inline void mutate_bytes(std::string& bytes, Choices& pick) {
  const std::size_t at = pick.below(bytes.size());
  const std::size_t length = pick.below(std::min<std::size_t>(bytes.size() - at, 64) + 1);
  switch (pick.below(7)) {
    case 0:
      if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << pick.below(8)));
      break;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<char>(pick.next());
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.erase(at, length);
      break;
    case 4:
      bytes.insert(at, bytes.substr(pick.below(bytes.size()), length));
      break;
    case 5:
      bytes.append(pick.below(300), static_cast<char>(pick.next()));
      break;
    default:
      bytes.insert(at, std::string(pick.below(40), static_cast<char>(pick.next())));
      break;
  }
}

/// A value that a reader may not expect.
inline nlohmann::json odd_value(Choices& pick) {
  using nlohmann::json;
  static const std::vector<json> kOdd{nullptr,
                                      true,
                                      "",
                                      "F32",
                                      "F99",
                                      "../x",
                                      -1,
                                      0,
                                      1,
                                      2,
                                      3,
                                      127,
                                      128,
                                      65536,
                                      2147483647,
                                      2147483648LL,
                                      -2147483649LL,
                                      9223372036854775807LL,
                                      18446744073709551615ULL,
                                      0.5,
                                      -0.0,
                                      1e308,
                                      json::array(),
                                      json::object(),
                                      {1, 2},
                                      {0, 0},
                                      {4611686018427387904LL, 4},
                                      {18446744073709551615ULL, 18446744073709551615ULL},
                                      {{"dtype", "F32"}}};
  if (pick.one_in(12)) {
    json deep = 1;
    const std::size_t levels = pick.below(200);
    for (std::size_t i = 0; i < levels; ++i) deep = json::array({std::move(deep)});
    return deep;
  }
  if (pick.one_in(12)) return pick.next();
  return pick.of(kOdd);
}

/// Damages one node of a document: replaces, removes, doubles or renames it, or nudges a number.
inline void mutate_json(nlohmann::json& node, Choices& pick) {
  const bool descend = node.is_structured() && !node.empty() && !pick.one_in(6);
  if (descend) {
    auto child = node.begin();
    std::advance(child, static_cast<std::ptrdiff_t>(pick.below(node.size())));
    if (pick.one_in(10)) {
      node.erase(child);
      return;
    }
    if (node.is_object() && pick.one_in(12)) {
      const nlohmann::json copy = *child;
      node[child.key() + "x"] = copy;
      if (pick.one_in(2)) node.erase(child.key());
      return;
    }
    if (node.is_array() && pick.one_in(12)) {
      const nlohmann::json copy = *child;
      node.push_back(copy);
      return;
    }
    mutate_json(*child, pick);
    return;
  }
  if (node.is_number_unsigned() && pick.one_in(2)) {
    const std::uint64_t value = node.get<std::uint64_t>();
    const std::array<std::uint64_t, 6> near{value + 1, value - 1,   value * 2,
                                            value / 2, value + 128, value << pick.below(64)};
    node = pick.of(near);
    return;
  }
  node = odd_value(pick);
}

}  // namespace megamoe
