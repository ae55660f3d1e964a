#pragma once

#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "megamoe/error.hpp"

namespace megamoe {

/// Zeroed, page-aligned host memory. Pages are taken from the system when they are first touched,
/// so a large capacity costs nothing until it is used.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Takes over a mapping.
  AlignedBuffer(std::byte* mapped, std::size_t bytes) : data_(mapped), bytes_(bytes) {}
  explicit AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw Error(ErrorCode::system, fmt::format("cannot map {} bytes of host memory", bytes));
    }
    data_ = static_cast<std::byte*>(memory);
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace megamoe
