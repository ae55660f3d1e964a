#pragma once

#include <cstddef>

namespace megamoe {

/// One buffer of a region, as a layout walk reports it.
struct BufferInfo {
  const char* name;
  std::size_t offset;
  std::size_t bytes;
  const char* shape;  ///< dimensions in words, for the printed map
};

/// Ignores every buffer: for walks that only need offsets.
struct NoVisitor {
  constexpr void operator()(const BufferInfo& /*buffer*/) const {}
};

/// Hands out consecutive, aligned pieces of a region and reports each to the visitor. Offsets and
/// the printed map come from the same calls, so they cannot disagree.
template <class Visitor>
class Carver {
 public:
  static constexpr std::size_t kAlignment = 1024;

  explicit constexpr Carver(Visitor& visit) : visit_(visit) {}

  constexpr std::size_t take(const char* name, const char* shape, std::size_t bytes) {
    const std::size_t offset = end_;
    visit_(BufferInfo{name, offset, bytes, shape});
    end_ = (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  [[nodiscard]] constexpr std::size_t end() const { return end_; }

 private:
  Visitor& visit_;
  std::size_t end_ = 0;
};

}  // namespace megamoe
