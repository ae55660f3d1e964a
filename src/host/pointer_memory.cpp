#include <fmt/format.h>

#include "host/devices.hpp"
#include "host/handshake.hpp"
#include "host/join/joined_memory.hpp"

namespace megamoe {
namespace {

constexpr std::size_t kAlignment = 1024;

/// Regions that the caller has mapped in every process.
class PointerMemory final : public join::JoinedMemory {
 public:
  PointerMemory(const JoinOptions& options, std::span<std::byte* const> bases, std::size_t bytes,
                int device)
      : JoinedMemory(options, device == kHostMemory ? "the caller's host memory"
                                                    : "the caller's device memory"),
        bases_(bases.begin(), bases.end()),
        bytes_(bytes) {
    const auto gather = [this](const std::string& text) { return all_gather(text); };
    refuse_together(gather, trouble_of([&] { check_bases(); }));
    if (device == kHostMemory) return;
    refuse_together(gather, trouble_of([&] { device_ = device_for("pointers", device); }));
    check_reach(gather, *device_);
  }

  [[nodiscard]] std::string kind() const override { return "the caller's memory"; }
  [[nodiscard]] std::vector<int> devices() const override {
    return device_ ? std::vector<int>{*device_} : std::vector<int>{};
  }

  std::vector<std::byte*> allocate(std::size_t bytes) override {
    Trouble trouble;
    if (bytes > bytes_ - used_) {
      trouble =
          Error(ErrorCode::invalid_argument,
                fmt::format("the caller's regions have {} bytes, {} of them used; {} more are "
                            "needed (symmetric_bytes)",
                            bytes_, used_, bytes));
    }
    refuse_together([this](const std::string& text) { return all_gather(text); }, trouble);
    std::vector<std::byte*> parts;
    parts.reserve(bases_.size());
    for (std::byte* base : bases_) parts.push_back(base + used_);
    used_ = std::min(bytes_, (used_ + bytes + kAlignment - 1) / kAlignment * kAlignment);
    return parts;
  }

 private:
  void check_bases() const {
    if (bases_.size() != static_cast<std::size_t>(ranks())) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("pointers: {} addresses for {} ranks", bases_.size(), ranks()));
    }
    for (std::size_t r = 0; r < bases_.size(); ++r) {
      const auto address = reinterpret_cast<std::uintptr_t>(bases_[r]);
      if (address == 0 || address % kAlignment != 0) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("pointers: the region of rank {} at {} is {}", r,
                                static_cast<const void*>(bases_[r]),
                                address == 0 ? "null" : "not aligned to 1024 bytes"));
      }
    }
  }

  std::vector<std::byte*> bases_;
  std::size_t bytes_;
  std::size_t used_ = 0;
  std::optional<int> device_;
};

}  // namespace

std::unique_ptr<SymmetricMemory> SymmetricMemory::pointers(const JoinOptions& options,
                                                           std::span<std::byte* const> bases,
                                                           std::size_t bytes, int device) {
  return std::make_unique<PointerMemory>(options, bases, bytes, device);
}

}  // namespace megamoe
