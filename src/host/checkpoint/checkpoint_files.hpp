#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "host/checkpoint/safetensors.hpp"

namespace megamoe {

/// The shards that a model.safetensors.index.json names: tensor -> file name in the same folder.
/// `path` is only named. Throws Error(invalid_file) for malformed text and for names of files that
/// are elsewhere.
std::map<std::string, std::string> parse_checkpoint_index(std::string_view text,
                                                          const std::string& path);

/// A checkpoint: a safetensors file, a folder with model.safetensors, or a folder with shards and
/// model.safetensors.index.json. Shards are opened when a tensor of theirs is first asked for.
class Checkpoint {
 public:
  /// Throws Error(invalid_file) for a path that is none of these and for a malformed index.
  explicit Checkpoint(const std::string& path);

  [[nodiscard]] bool contains(const std::string& tensor) const;
  [[nodiscard]] std::optional<TensorView> find(const std::string& tensor);
  /// Throws Error(invalid_file) naming the checkpoint when it has no such tensor.
  [[nodiscard]] TensorView at(const std::string& tensor);
  /// The folder that holds the files; config.json is looked for here.
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void read_index(const std::string& index_path);
  SafetensorsFile& shard(const std::string& file);

  std::string path_, folder_;
  std::map<std::string, std::string> file_of_;  ///< tensor -> file name in folder_; empty: one file
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  ///< by file name
};

}  // namespace megamoe
