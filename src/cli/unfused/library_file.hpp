#pragma once

#include <string>
#include <vector>

namespace megamoe::cli::unfused {

/// A shared library that is opened when it is first needed, and stays open.
class LibraryFile {
 public:
  /// Opens the file that the environment variable names, else the first of `names` that the loader
  /// finds. Throws Error(unsupported) with the names that were tried and the loader's words.
  LibraryFile(const char* variable, const std::vector<std::string>& names);

  /// The address of a function. Throws Error(unsupported) naming function and file.
  template <class Function>
  void find(const char* function_name, Function& function) const {
    function = reinterpret_cast<Function>(address(function_name));
  }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  [[nodiscard]] void* address(const char* function_name) const;

  std::string name_;
  void* handle_ = nullptr;  // never closed: such libraries leave threads and exit handlers behind
};

}  // namespace megamoe::cli::unfused
