#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "host/checkpoint/mapped_file.hpp"

// The safetensors format: 8 bytes N (little endian), N bytes of JSON that map each tensor's name to
// its dtype, shape and byte range, then the tensors' bytes, row-major and little endian, without
// holes. Every number of a header is checked before it is used, since files come from elsewhere.

namespace megamoe {

/// Element types that this library reads. A file may hold others: they are refused only when such a
/// tensor is asked for.
enum class DType : std::uint8_t { f32, f16, bf16, f8_e4m3, f8_e8m0, u8, i8, i32, i64, other };

/// Bytes of one element; 0 for `other`.
std::size_t dtype_bytes(DType dtype);
/// The format's own spelling, such as "F8_E4M3".
const char* name(DType dtype);

/// One tensor of an open file; the bytes belong to the file's mapping.
struct TensorView {
  std::string name;
  std::string file;  ///< path, for messages
  DType dtype = DType::other;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;

  /// "file F: tensor N", the beginning of every message about it.
  [[nodiscard]] std::string where() const;
};

/// "F32 [2, 3]".
std::string describe(DType dtype, std::span<const std::int64_t> shape);

/// Throws Error(invalid_file), naming file, tensor, expected and found, unless the tensor has this
/// shape and one of these dtypes.
void expect(const TensorView& tensor, std::initializer_list<DType> dtypes,
            std::span<const std::int64_t> shape);

/// One safetensors file, mapped, or in memory.
class SafetensorsFile {
 public:
  /// Largest header that is read, the limit of the format's own library.
  static constexpr std::size_t kMaxHeaderBytes = 100'000'000;

  /// Throws Error(invalid_file) when the file is missing, truncated, longer than its header says,
  /// or its header is malformed, has overlapping or outlying byte ranges, holes, or shapes that do
  /// not fit them.
  explicit SafetensorsFile(const std::string& path);
  /// The same for a file's bytes in memory that outlive the object; `path` is only named.
  SafetensorsFile(std::span<const std::byte> bytes, std::string path);

  /// The tensor, or nothing. Throws Error(invalid_file) when its dtype is none that is read here.
  [[nodiscard]] std::optional<TensorView> find(const std::string& tensor) const;
  /// As find(), but a missing tensor is an Error too.
  [[nodiscard]] TensorView at(const std::string& tensor) const;
  [[nodiscard]] bool contains(const std::string& tensor) const {
    return entries_.count(tensor) != 0;
  }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Entry {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::size_t begin = 0, end = 0;  ///< in the file
  };
  /// The header's JSON, in bytes_.
  [[nodiscard]] std::string_view header_text() const;
  void read_header();
  [[nodiscard]] Entry read_entry(const std::string& tensor, const nlohmann::json& description,
                                 std::size_t data_begin) const;
  void check_ranges(std::size_t data_begin) const;

  std::string path_;
  std::optional<MappedFile> mapping_;  ///< none: the bytes are the caller's
  std::span<const std::byte> bytes_;
  std::map<std::string, Entry> entries_;
};

/// A tensor to be written.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes a safetensors file. It appears under `path` complete or not at all: the bytes go to a
/// temporary file beside it, which is then renamed. Throws Error(invalid_argument) when a tensor's
/// bytes do not fit its shape or a name occurs twice, Error(system) when the disk refuses.
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace megamoe
