#include <fmt/format.h>

#include "host/handshake.hpp"
#include "host/join/joined_memory.hpp"
#include "host/join/segment.hpp"

namespace megamoe {
namespace {

/// One rank per process, over POSIX shared memory. Names disappear as soon as all have mapped them,
/// so a process that is killed leaves nothing behind.
class SharedMemory final : public join::JoinedMemory {
 public:
  explicit SharedMemory(const JoinOptions& options) : JoinedMemory(options, kKind) {
    const std::vector<int> others = watch().elsewhere();
    Trouble trouble;
    if (!others.empty()) {
      trouble = Error(ErrorCode::unsupported,
                      fmt::format("shared memory does not reach ranks {} on other machines",
                                  fmt::join(others, ", ")));
    }
    refuse_together([this](const std::string& text) { return all_gather(text); }, trouble);
  }

  [[nodiscard]] std::string kind() const override { return kKind; }

  std::vector<std::byte*> allocate(std::size_t bytes) override {
    const auto gather = [this](const std::string& text) { return all_gather(text); };
    const join::SegmentName own(segment(rank()));
    // It lives on under its name until all have mapped it.
    refuse_together(gather, trouble_of([&] { join::map_segment(own.text(), bytes, true); }));
    std::vector<std::byte*> bases;
    std::vector<AlignedBuffer> mapped;
    refuse_together(gather, trouble_of([&] {
                      for (int r = 0; r < ranks(); ++r) {
                        mapped.push_back(join::map_segment(segment(r), bytes, false));
                        bases.push_back(mapped.back().data());
                      }
                    }));
    for (AlignedBuffer& region : mapped) regions_.push_back(std::move(region));
    return bases;
  }

 private:
  static constexpr const char* kKind = "shared memory between processes";

  [[nodiscard]] std::string segment(int of_rank) const {
    const std::size_t index = regions_.size() / static_cast<std::size_t>(ranks());
    return fmt::format("/megamoe.{}.{}.{}", group_name(), index, of_rank);
  }

  std::vector<AlignedBuffer> regions_;
};

}  // namespace

std::unique_ptr<SymmetricMemory> SymmetricMemory::shared(const JoinOptions& options) {
  return std::make_unique<SharedMemory>(options);
}

}  // namespace megamoe
