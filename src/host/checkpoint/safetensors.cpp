#include "host/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "host/checkpoint/json_text.hpp"
#include "host/checkpoint/refuse_file.hpp"
#include "megamoe/error.hpp"

namespace megamoe {
namespace {

using nlohmann::json;

struct DTypeRow {
  DType dtype;
  const char* name;
  std::size_t bytes;
};
constexpr std::array<DTypeRow, 9> kDTypes{{
    {DType::f32, "F32", 4},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::f8_e4m3, "F8_E4M3", 1},
    {DType::f8_e8m0, "F8_E8M0", 1},
    {DType::u8, "U8", 1},
    {DType::i8, "I8", 1},
    {DType::i32, "I32", 4},
    {DType::i64, "I64", 8},
}};

/// More dimensions than any model's tensor has.
constexpr std::size_t kMaxDimensions = 16;

DType parse_dtype(const std::string& text) {
  for (const DTypeRow& row : kDTypes) {
    if (text == row.name) return row.dtype;
  }
  return DType::other;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& tensor,
                              const std::string& detail) {
  throw Error(ErrorCode::invalid_file,
              fmt::format("file {}: tensor {}: {}", path, printable(tensor), detail));
}

/// The product of the shape's dimensions and `element_bytes`, or nothing when it does not fit.
std::optional<std::size_t> shape_bytes(std::span<const std::int64_t> shape,
                                       std::size_t element_bytes) {
  // A dimension of 0 makes the product 0 whatever the others are, so overflow before it does not
  // matter.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::size_t total = element_bytes;
  for (const std::int64_t dimension : shape) {
    if (__builtin_mul_overflow(total, static_cast<std::size_t>(dimension), &total)) return {};
  }
  return total;
}

/// The member `key` of a tensor's description.
const json& member(const std::string& path, const std::string& tensor, const json& description,
                   const char* key) {
  const auto found = description.find(key);
  if (found == description.end()) {
    refuse_file(path, tensor, fmt::format("expected a member \"{}\", found none", key));
  }
  return *found;
}

/// A count or offset: refuses negative, fractional and huge numbers.
std::int64_t natural(const std::string& path, const std::string& tensor, const char* key,
                     const json& value) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) {
    refuse_file(
        path, tensor,
        fmt::format("{}: expected integers from 0 to 2^63 - 1, found {}", key, describe(value)));
  }
  return static_cast<std::int64_t>(value.get<std::uint64_t>());
}

}  // namespace

std::size_t dtype_bytes(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (dtype == row.dtype) return row.bytes;
  }
  return 0;
}

const char* name(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (dtype == row.dtype) return row.name;
  }
  return "another dtype";
}

std::string TensorView::where() const { return fmt::format("file {}: tensor {}", file, name); }

std::string describe(DType dtype, std::span<const std::int64_t> shape) {
  return fmt::format("{} [{}]", name(dtype), fmt::join(shape, ", "));
}

void expect(const TensorView& tensor, std::initializer_list<DType> dtypes,
            std::span<const std::int64_t> shape) {
  const bool dtype_ok = std::find(dtypes.begin(), dtypes.end(), tensor.dtype) != dtypes.end();
  if (dtype_ok && std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end()))
    return;
  std::string wanted;
  for (const DType dtype : dtypes) {
    if (!wanted.empty()) wanted += " or ";
    wanted += name(dtype);
  }
  throw Error(ErrorCode::invalid_file,
              fmt::format("{}: expected {} [{}], found {}", tensor.where(), wanted,
                          fmt::join(shape, ", "), describe(tensor.dtype, tensor.shape)));
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), mapping_(std::in_place, path), bytes_(mapping_->bytes()) {
  read_header();
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string path)
    : path_(std::move(path)), bytes_(bytes) {
  read_header();
}

std::string_view SafetensorsFile::header_text() const {
  constexpr std::size_t kLengthBytes = 8;
  const std::span<const std::byte> all = bytes_;
  if (all.size() < kLengthBytes) {
    refuse_file(path(),
                fmt::format("expected a safetensors file, found only {} bytes", all.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(all[i]);
  if (length > kMaxHeaderBytes) {
    refuse_file(path(),
                fmt::format("expected a safetensors header of at most {} bytes, found length {}",
                            kMaxHeaderBytes, length));
  }
  if (length > all.size() - kLengthBytes) {
    refuse_file(
        path(),
        fmt::format("truncated: expected a header of {} bytes, found {} bytes after its length",
                    length, all.size() - kLengthBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(all.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  if (text.empty() || text.front() != '{') {
    refuse_file(path(), "expected a safetensors header that begins with '{'");
  }
  return text;
}

void SafetensorsFile::read_header() {
  const std::string_view text = header_text();
  const json header = parse_json(text, {.bytes = kMaxHeaderBytes, .depth = 8},
                                 fmt::format("file {}: header", path()));
  const auto* data = reinterpret_cast<const std::byte*>(text.data() + text.size());
  const auto data_begin = static_cast<std::size_t>(data - bytes_.data());
  for (const auto& [tensor, description] : header.items()) {
    if (tensor == "__metadata__") continue;
    if (!description.is_object()) {
      refuse_file(path(), tensor,
                  fmt::format("expected an object, found {}", describe(description)));
    }
    entries_.emplace(tensor, read_entry(tensor, description, data_begin));
  }
  check_ranges(data_begin);
}

SafetensorsFile::Entry SafetensorsFile::read_entry(const std::string& tensor,
                                                   const json& description,
                                                   std::size_t data_begin) const {
  Entry entry;
  const json& dtype = member(path(), tensor, description, "dtype");
  if (!dtype.is_string()) {
    refuse_file(path(), tensor, fmt::format("dtype: expected a string, found {}", describe(dtype)));
  }
  entry.dtype = dtype.get<std::string>();
  const json& shape = member(path(), tensor, description, "shape");
  if (!shape.is_array() || shape.size() > kMaxDimensions) {
    refuse_file(path(), tensor,
                fmt::format("shape: expected an array of at most {} integers, found {}",
                            kMaxDimensions, describe(shape)));
  }
  for (const json& dimension : shape)
    entry.shape.push_back(natural(path(), tensor, "shape", dimension));
  const json& offsets = member(path(), tensor, description, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    refuse_file(
        path(), tensor,
        fmt::format("data_offsets: expected an array of 2 integers, found {}", describe(offsets)));
  }
  const auto begin = static_cast<std::size_t>(natural(path(), tensor, "data_offsets", offsets[0]));
  const auto end = static_cast<std::size_t>(natural(path(), tensor, "data_offsets", offsets[1]));
  if (const std::size_t data_bytes = bytes_.size() - data_begin; begin > end || end > data_bytes) {
    refuse_file(
        path(), tensor,
        fmt::format("data_offsets: expected a range within {} bytes of data, found [{}, {}]; the "
                    "file may be truncated",
                    data_bytes, begin, end));
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  const DType known = parse_dtype(entry.dtype);
  if (known == DType::other) return entry;
  const auto bytes = shape_bytes(entry.shape, dtype_bytes(known));
  if (!bytes || *bytes != end - begin) {
    refuse_file(path(), tensor,
                fmt::format("expected {} bytes for {}, found data_offsets [{}, {}]",
                            bytes ? std::to_string(*bytes) : "more than 2^64",
                            describe(known, entry.shape), begin, end));
  }
  return entry;
}

void SafetensorsFile::check_ranges(std::size_t data_begin) const {
  std::vector<std::pair<std::string, Entry>> sorted(entries_.begin(), entries_.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
  std::size_t next = data_begin;
  const std::string* before = nullptr;
  for (const auto& [tensor, entry] : sorted) {
    if (entry.begin < next) {
      refuse_file(path(), tensor,
                  fmt::format("bytes [{}, {}] overlap those of tensor {}, which end at {}",
                              entry.begin - data_begin, entry.end - data_begin,
                              before != nullptr ? printable(*before) : "", next - data_begin));
    }
    if (entry.begin > next) {
      refuse_file(
          path(), tensor,
          fmt::format("expected its bytes to begin at {}, found {}: no tensor owns the bytes "
                      "between",
                      next - data_begin, entry.begin - data_begin));
    }
    next = entry.end;
    before = &tensor;
  }
  if (const std::size_t size = bytes_.size(); next != size) {
    refuse_file(path(), fmt::format("expected {} bytes by its header, found {}", next, size));
  }
}

std::optional<TensorView> SafetensorsFile::find(const std::string& tensor) const {
  const auto found = entries_.find(tensor);
  if (found == entries_.end()) return {};
  const Entry& entry = found->second;
  const DType dtype = parse_dtype(entry.dtype);
  if (dtype == DType::other) {
    std::string known;
    for (const DTypeRow& row : kDTypes)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
    refuse_file(path(), tensor,
                fmt::format("expected one of {}, found dtype {}", known, printable(entry.dtype)));
  }
  return TensorView{.name = tensor,
                    .file = path(),
                    .dtype = dtype,
                    .shape = entry.shape,
                    .bytes = bytes_.subspan(entry.begin, entry.end - entry.begin)};
}

TensorView SafetensorsFile::at(const std::string& tensor) const {
  auto view = find(tensor);
  if (!view) {
    refuse_file(
        path(), tensor,
        fmt::format("expected in the file, found none among its {} tensors", entries_.size()));
  }
  return *std::move(view);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> all;
  all.reserve(entries_.size());
  for (const auto& [tensor, entry] : entries_) all.push_back(tensor);
  return all;
}

}  // namespace megamoe
