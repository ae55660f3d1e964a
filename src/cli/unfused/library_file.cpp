#include "cli/unfused/library_file.hpp"

#include <cstdlib>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megamoe/error.hpp"

namespace megamoe::cli::unfused {
namespace {

std::string loader_words() {
  const char* words = dlerror();
  return words == nullptr ? "no reason given" : words;
}

}  // namespace

LibraryFile::LibraryFile(const char* variable, const std::vector<std::string>& names) {
  const char* wanted = std::getenv(variable);
  const bool given = wanted != nullptr && *wanted != '\0';
  const std::vector<std::string> tried = given ? std::vector<std::string>{wanted} : names;
  std::string words;
  for (const std::string& name : tried) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = name;
      return;
    }
    words = loader_words();
  }
  throw Error(ErrorCode::unsupported,
              given ? fmt::format("{} = {} cannot be opened: {}", variable, wanted, words)
                    : fmt::format("{} not found ({} = PATH names it): {}", fmt::join(tried, ", "),
                                  variable, words));
}

void* LibraryFile::address(const char* function_name) const {
  void* found = dlsym(handle_, function_name);
  if (found == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} has no {}: {}", name_, function_name, loader_words()));
  }
  return found;
}

}  // namespace megamoe::cli::unfused
