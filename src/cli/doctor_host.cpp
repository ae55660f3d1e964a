#include <cstdlib>
#include <fstream>
#include <memory>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "cli/doctor.hpp"

namespace megamoe::cli {
namespace {

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

/// Calls `int function(int*)` of a shared library; none if either is missing or it fails.
std::optional<int> ask_library(const char* library_name, const char* function_name) {
  const std::unique_ptr<void, CloseLibrary> library(dlopen(library_name, RTLD_LAZY | RTLD_LOCAL));
  if (library == nullptr) return std::nullopt;
  using Function = int (*)(int*);
  const auto function = reinterpret_cast<Function>(dlsym(library.get(), function_name));
  int value = 0;
  if (function == nullptr || function(&value) != 0) return std::nullopt;
  return value;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

NcclFacts find_nccl() {
  const std::optional<int> version = ask_library("libnccl.so.2", "ncclGetVersion");
  if (!version) return {};
  // as in nccl.h: 2.9 and later have two digits more for the minor version
  const int v = *version;
  const bool old = v < 10000;
  return {.found = true,
          .version = fmt::format("{}.{}.{}", v / (old ? 1000 : 10000),
                                 v % (old ? 1000 : 10000) / 100, v % 100)};
}

std::optional<std::uint64_t> soft_limit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

LimitFacts find_limits() {
  LimitFacts limits;
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    limits.shm_bytes = std::uint64_t{shm.f_blocks} * shm.f_frsize;
    limits.shm_free_bytes = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  }
  limits.memlock_bytes = soft_limit(RLIMIT_MEMLOCK);
  limits.open_files = soft_limit(RLIMIT_NOFILE);
  return limits;
}

}  // namespace

void examine_host(MachineFacts& facts) {
  facts.driver = ask_library("libcuda.so.1", "cuDriverGetVersion").value_or(0);
  facts.driver_release = first_line("/sys/module/nvidia/version");
  facts.nccl = find_nccl();
  facts.limits = find_limits();
}

}  // namespace megamoe::cli
