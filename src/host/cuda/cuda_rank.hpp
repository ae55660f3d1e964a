#pragma once

#include <array>
#include <mutex>

#include "host/cuda/event.hpp"
#include "host/cuda/rank_maps.hpp"
#include "host/cuda/runtime.hpp"
#include "host/rank_space.hpp"
#include "kernels/stage.hpp"
#include "megamoe/megamoe.hpp"

namespace megamoe::cuda {

/// One local rank on a GPU: its memory beside the symmetric one, and what its launches reuse.
class CudaRank final : public RankSpace {
 public:
  /// `device` is the current one.
  CudaRank(int device, std::size_t local_bytes);
  CudaRank(const CudaRank&) = delete;
  CudaRank& operator=(const CudaRank&) = delete;
  /// Waits for the device: a running kernel may still use the memory.
  ~CudaRank() override;

  [[nodiscard]] std::byte* local() const override { return local_.data(); }
  [[nodiscard]] protocol::FaultRecord& record() const override;
  /// Copies over a stream of its own, so that it waits for no kernel.
  void read(void* to, const void* from, std::size_t bytes) const override;
  void write(void* to, const void* from, std::size_t bytes) override;
  void zero(void* to, std::size_t bytes) override { fill(to, 0, bytes); }
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) const override;
  [[nodiscard]] bool reads_are_cheap() const override { return false; }

  void fill(void* to, int byte, std::size_t bytes);
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] protocol::FaultRecord* device_record() const;
  [[nodiscard]] StageWords* stage_words() const;

  /// How long waits may last: in the first call after creation or reset, and in others.
  struct Deadlines {
    std::uint64_t others_ns = 0;
    std::uint64_t first_ns = 0;
    bool operator==(const Deadlines&) const = default;
  };
  static constexpr std::size_t kDeadlines = 64;
  /// Stores them into the local header before what `stream` does next, if they are not there
  /// already. A captured call cannot carry the store, or it would undo later ones: it is made at
  /// once, beside the capture. `generation`: a reset has zeroed the header since. With more than
  /// kDeadlines changes under way it waits for the oldest.
  void set_deadlines(LocalHeader* header, protocol::u32 generation, const Deadlines& deadlines,
                     cudaStream_t stream, bool capturing);

  /// Stores the last ones once more, or those that hold until a call brings its own.
  void restore_deadlines(LocalHeader* header, protocol::u32 generation);

  enum class Peers : unsigned char { refused, allowed };
  /// Throws Error unless this device can address `pointer`; it is remembered then.
  void require_addressable(const char* field, const void* pointer, Peers peers = Peers::refused);

  void note_stream(cudaStream_t stream) { last_stream_ = stream; }
  void synchronize() const;

  RankMapCache maps;
  int most_staged = 0;  ///< the most tokens that any call staged

 private:
  static constexpr std::size_t kBounceBytes = 64 * 1024;
  int device_;
  DeviceBuffer local_;
  DeviceBuffer stage_words_;
  MappedBuffer record_;
  MappedBuffer bounce_;     ///< between the caller's memory and the device
  MappedBuffer deadlines_;  ///< values on their way, in turn
  std::array<Milestone, kDeadlines> deadlines_stored_;
  PrivateStream stream_;
  mutable std::mutex copying_;  ///< abort() comes from any thread
  std::size_t next_deadline_ = 0;
  Deadlines deadlines_set_ = {30'000'000'000, 60'000'000'000};
  protocol::u32 deadline_generation_ = 0;
  std::array<const void*, 16> known_ = {};
  std::size_t next_known_ = 0;
  cudaStream_t last_stream_ = nullptr;
};

}  // namespace megamoe::cuda
