#include "host/checkpoint/checkpoint_files.hpp"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "host/checkpoint/json_text.hpp"
#include "host/checkpoint/mapped_file.hpp"
#include "host/checkpoint/refuse_file.hpp"
#include "megamoe/error.hpp"

namespace megamoe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
/// An index of 500,000 tensors, the largest published, has 60 MB.
constexpr std::size_t kMaxIndexBytes = 256'000'000;

bool present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Whether a shard's name stays in the checkpoint's folder.
bool plain_file_name(const std::string& file) {
  return !file.empty() && file != "." && file != ".." &&
         file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

std::map<std::string, std::string> parse_checkpoint_index(std::string_view text,
                                                          const std::string& path) {
  const json index =
      parse_json(text, {.bytes = kMaxIndexBytes, .depth = 16}, fmt::format("file {}", path));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    refuse_file(path, "expected an object with an object \"weight_map\"");
  }
  std::map<std::string, std::string> file_of;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !plain_file_name(shard.get<std::string>())) {
      refuse_file(path,
                  fmt::format("tensor {}: expected the name of a file in the same folder, found {}",
                              printable(tensor), describe(shard)));
    }
    file_of.emplace(tensor, shard.get<std::string>());
  }
  if (file_of.empty()) refuse_file(path, "expected tensors in \"weight_map\", found none");
  return file_of;
}

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
  std::error_code reason;
  const fs::file_status status = fs::status(path, reason);
  if (status.type() == fs::file_type::not_found) refuse_file(path, "no such file or folder");
  if (!fs::status_known(status))
    refuse_file(path, fmt::format("cannot look at it: {}", reason.message()));
  if (!fs::is_directory(status)) {
    const fs::path parent = fs::path(path).parent_path();
    folder_ = (parent.empty() ? fs::path(".") : parent).string();
    const std::string file = fs::path(path).filename().string();
    if (fs::path(path).extension() == ".json") {
      read_index(path);
    } else {
      files_.emplace(file, std::make_unique<SafetensorsFile>(path));
    }
    return;
  }
  folder_ = path;
  const fs::path index = fs::path(path) / kIndexName;
  const fs::path single = fs::path(path) / kSingleName;
  if (present(index)) {
    read_index(index.string());
  } else if (present(single)) {
    files_.emplace(kSingleName, std::make_unique<SafetensorsFile>(single.string()));
  } else {
    throw Error(ErrorCode::invalid_file, fmt::format("folder {}: expected {} or {}, found neither",
                                                     path, kIndexName, kSingleName));
  }
}

void Checkpoint::read_index(const std::string& index_path) {
  const MappedFile file(index_path);
  file_of_ = parse_checkpoint_index(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, index_path);
}

SafetensorsFile& Checkpoint::shard(const std::string& file) {
  auto found = files_.find(file);
  if (found == files_.end()) {
    const std::string path = (fs::path(folder_) / file).string();
    found = files_.emplace(file, std::make_unique<SafetensorsFile>(path)).first;
  }
  return *found->second;
}

bool Checkpoint::contains(const std::string& tensor) const {
  if (!file_of_.empty()) return file_of_.count(tensor) != 0;
  return files_.begin()->second->contains(tensor);
}

std::optional<TensorView> Checkpoint::find(const std::string& tensor) {
  if (file_of_.empty()) return files_.begin()->second->find(tensor);
  const auto found = file_of_.find(tensor);
  if (found == file_of_.end()) return {};
  // An index that names a shard without the tensor is an error of its own, which at() words.
  return shard(found->second).at(tensor);
}

TensorView Checkpoint::at(const std::string& tensor) {
  auto view = find(tensor);
  if (!view) {
    throw Error(
        ErrorCode::invalid_file,
        fmt::format("checkpoint {}: tensor {}: expected, found none of that name", path_, tensor));
  }
  return *std::move(view);
}

}  // namespace megamoe
