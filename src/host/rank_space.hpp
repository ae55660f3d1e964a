#pragma once

#include <cstddef>
#include <memory>

#include "protocol/fault.hpp"

namespace megamoe {

/// What one local rank keeps outside the symmetric memory, and how the host reaches words and
/// buffers that its calls use. Addresses are those that calls use: only these functions may follow
/// them, since they may lie on a device.
class RankSpace {
 public:
  virtual ~RankSpace() = default;

  /// The rank's local region, zeroed, aligned to 1024 bytes.
  [[nodiscard]] virtual std::byte* local() const = 0;
  /// Host memory that a running call can write.
  [[nodiscard]] virtual protocol::FaultRecord& record() const = 0;

  /// Copies `bytes`, a multiple of 4, of words out of a local or symmetric region of this process,
  /// without waiting for running calls. Words are read whole, one after another.
  virtual void read(void* to, const void* from, std::size_t bytes) const = 0;
  /// Stores words as `read` reads them.
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  /// Zeroes memory that no call is using.
  virtual void zero(void* to, std::size_t bytes) = 0;
  /// More zeroed memory that this rank's calls can address; freed with the last copy of the
  /// pointer. No call may be using it then.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) const = 0;
  /// False if reads take so long that a call should do without.
  [[nodiscard]] virtual bool reads_are_cheap() const = 0;

  template <class T>
  [[nodiscard]] T load(const T* word) const {
    T value{};
    read(&value, word, sizeof(T));
    return value;
  }
  template <class T>
  void store(T* word, T value) {
    write(word, &value, sizeof(T));
  }
};

/// A space in ordinary memory.
std::unique_ptr<RankSpace> make_host_space(std::size_t local_bytes);

}  // namespace megamoe
