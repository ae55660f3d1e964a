#include <atomic>
#include <cstring>

#include "host/aligned_buffer.hpp"
#include "host/rank_space.hpp"

namespace megamoe {
namespace {

using protocol::u32;
using protocol::u64;

/// Calls f with a pointer to each word of [to, to + bytes): 64 bits wide where alignment and size
/// allow, as the protocol's words are, else 32. `other` moves along.
template <class Byte, class F>
void for_words(std::byte* host, Byte* other, std::size_t bytes, F f) {
  for (std::size_t at = 0; at < bytes;) {
    const bool wide = reinterpret_cast<std::uintptr_t>(other + at) % sizeof(u64) == 0 &&
                      bytes - at >= sizeof(u64);
    if (wide) {
      f(host + at, other + at, u64{});
    } else {
      f(host + at, other + at, u32{});
    }
    at += wide ? sizeof(u64) : sizeof(u32);
  }
}

class HostSpace final : public RankSpace {
 public:
  explicit HostSpace(std::size_t local_bytes) : local_(local_bytes) {}

  [[nodiscard]] std::byte* local() const override { return local_.data(); }
  [[nodiscard]] protocol::FaultRecord& record() const override { return *record_; }
  [[nodiscard]] bool reads_are_cheap() const override { return true; }

  void read(void* to, const void* from, std::size_t bytes) const override {
    for_words(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes,
              [](std::byte* host, const std::byte* word, auto width) {
                using Word = decltype(width);
                auto* shared = reinterpret_cast<Word*>(const_cast<std::byte*>(word));
                const Word value = std::atomic_ref<Word>(*shared).load();
                std::memcpy(host, &value, sizeof(Word));
              });
  }
  void write(void* to, const void* from, std::size_t bytes) override {
    for_words(static_cast<std::byte*>(const_cast<void*>(from)), static_cast<std::byte*>(to), bytes,
              [](const std::byte* host, std::byte* word, auto width) {
                using Word = decltype(width);
                Word value{};
                std::memcpy(&value, host, sizeof(Word));
                std::atomic_ref<Word>(*reinterpret_cast<Word*>(word)).store(value);
              });
  }
  void zero(void* to, std::size_t bytes) override { std::memset(to, 0, bytes); }
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    const auto buffer = std::make_shared<AlignedBuffer>(bytes);
    return {buffer, buffer->data()};
  }

 private:
  AlignedBuffer local_;
  std::unique_ptr<protocol::FaultRecord> record_ = std::make_unique<protocol::FaultRecord>();
};

}  // namespace

std::unique_ptr<RankSpace> make_host_space(std::size_t local_bytes) {
  return std::make_unique<HostSpace>(local_bytes);
}

}  // namespace megamoe
