#include "cli/unfused/nccl.hpp"

#include <fmt/format.h>

#include "cli/unfused/library_file.hpp"
#include "host/cuda/runtime.hpp"

namespace megamoe::cli::unfused {
namespace {

constexpr int kSuccess = 0;
constexpr int kUint8 = 1;

NcclLibrary load_nccl() {
  const LibraryFile file("MEGAMOE_NCCL", {"libnccl.so.2"});
  NcclLibrary library{};
  file.find("ncclGetVersion", library.get_version);
  file.find("ncclGetErrorString", library.error_string);
  file.find("ncclCommInitAll", library.comm_init_all);
  file.find("ncclCommDestroy", library.comm_destroy);
  file.find("ncclGroupStart", library.group_start);
  file.find("ncclGroupEnd", library.group_end);
  file.find("ncclSend", library.send);
  file.find("ncclRecv", library.receive);
  return library;
}

void check(int result, const char* what) {
  if (result == kSuccess) return;
  throw Error(ErrorCode::system,
              fmt::format("{}: {} (NCCL result {})", what, nccl().error_string(result), result));
}

}  // namespace

const NcclLibrary& nccl() {
  static const NcclLibrary kLibrary = load_nccl();
  return kLibrary;
}

NcclExchange::NcclExchange(std::span<const int> devices) : comms_(devices.size()) {
  check(nccl().comm_init_all(comms_.data(), static_cast<int>(devices.size()), devices.data()),
        "ncclCommInitAll");
}

NcclExchange::~NcclExchange() {
  for (NcclLibrary::Comm comm : comms_) nccl().comm_destroy(comm);
}

void NcclExchange::all_to_all(std::span<const RankTransfer> transfers) {
  check(nccl().group_start(), "ncclGroupStart");
  // The group must be closed whatever happens, so the first failure waits until then.
  int failed = kSuccess;
  const auto note_failure = [&](int result) {
    if (failed == kSuccess) failed = result;
  };
  for (std::size_t r = 0; r < transfers.size(); ++r) {
    const RankTransfer& own = transfers[r];
    const std::byte* from = own.from;
    std::byte* to = own.to;
    for (std::size_t peer = 0; peer < transfers.size(); ++peer) {
      const int p = static_cast<int>(peer);
      if (own.bytes_to[peer] > 0)
        note_failure(nccl().send(from, own.bytes_to[peer], kUint8, p, comms_[r], own.stream));
      if (own.bytes_from[peer] > 0)
        note_failure(nccl().receive(to, own.bytes_from[peer], kUint8, p, comms_[r], own.stream));
      from += own.bytes_to[peer];
      to += own.bytes_from[peer];
    }
  }
  note_failure(nccl().group_end());
  check(failed, "ncclSend and ncclRecv in a group");
}

std::string NcclExchange::note() const {
  int v = 0;
  check(nccl().get_version(&v), "ncclGetVersion");
  return fmt::format("NCCL {}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

}  // namespace megamoe::cli::unfused
