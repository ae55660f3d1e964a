#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "host/checkpoint/safetensors.hpp"
#include "megamoe/error.hpp"

namespace megamoe {
namespace {

[[noreturn]] void refuse(const TensorToWrite& tensor, const std::string& detail) {
  throw Error(ErrorCode::invalid_argument, fmt::format("tensor {}: {}", tensor.name, detail));
}

/// The JSON header, padded with blanks so that the data begins at a multiple of 8.
std::string make_header(std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    std::size_t bytes = dtype_bytes(tensor.dtype);
    for (const std::int64_t dimension : tensor.shape) {
      if (dimension < 0 ||
          __builtin_mul_overflow(bytes, static_cast<std::size_t>(dimension), &bytes)) {
        refuse(tensor, fmt::format("shape {} is not one", describe(tensor.dtype, tensor.shape)));
      }
    }
    if (bytes != tensor.bytes.size()) {
      refuse(tensor, fmt::format("{} takes {} bytes, given {}",
                                 describe(tensor.dtype, tensor.shape), bytes, tensor.bytes.size()));
    }
    if (header.contains(tensor.name)) refuse(tensor, "given twice");
    header[tensor.name] = {{"dtype", name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

/// A file beside the final path; removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& final_path)
      : final_path_(final_path), path_(final_path + ".XXXXXX") {
    fd_ = ::mkstemp(path_.data());
    if (fd_ < 0) fail("create");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
  }

  void write(const void* data, std::size_t bytes) {
    const auto* next = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(fd_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write");
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }

  void rename_into_place() {
    constexpr mode_t kMode = 0644;  // mkstemp gives 0600
    if (::fchmod(fd_, kMode) != 0) fail("set the mode of");
    if (::fsync(fd_) != 0) fail("flush");
    const int closed = ::close(fd_);
    fd_ = -1;
    if (closed != 0) fail("close");
    if (std::rename(path_.c_str(), final_path_.c_str()) != 0) fail("rename");
    renamed_ = true;
  }

 private:
  [[noreturn]] void fail(const char* step) const {
    throw Error(ErrorCode::system, fmt::format("file {}: cannot {} {}: {}", final_path_, step,
                                               path_, std::strerror(errno)));
  }

  std::string final_path_, path_;
  int fd_ = -1;
  bool renamed_ = false;
};

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata);
  unsigned char length[8];
  for (std::size_t i = 0; i < sizeof length; ++i)
    length[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
  TemporaryFile file(path);
  file.write(length, sizeof length);
  file.write(header.data(), header.size());
  for (const TensorToWrite& tensor : tensors) file.write(tensor.bytes.data(), tensor.bytes.size());
  file.rename_into_place();
}

}  // namespace megamoe
