#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace megamoe {

/// A regular file mapped read-only. The bytes stay valid as long as the object. A file that another
/// process shortens while it is mapped kills the reader with SIGBUS: checkpoints must be replaced
/// by renaming, as write_safetensors() does.
class MappedFile {
 public:
  /// Throws Error(invalid_file) naming the path: missing, not readable, not a regular file.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace megamoe
