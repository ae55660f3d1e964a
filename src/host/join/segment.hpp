#pragma once

#include <string>

#include "host/aligned_buffer.hpp"

namespace megamoe::join {

/// Maps `bytes` of the named segment of POSIX shared memory; creates it first if `create`, with all
/// its pages. Throws Error (system) with the name, the bytes and the system's reason; a name that
/// it made stays.
AlignedBuffer map_segment(const std::string& name, std::size_t bytes, bool create);

/// Takes a segment's name away at the end of a scope, however that ends; its mappings stay.
class SegmentName {
 public:
  explicit SegmentName(std::string name) : name_(std::move(name)) {}
  SegmentName(const SegmentName&) = delete;
  SegmentName& operator=(const SegmentName&) = delete;
  ~SegmentName();
  [[nodiscard]] const std::string& text() const { return name_; }

 private:
  std::string name_;
};

}  // namespace megamoe::join
