#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/device/gpu_memory.hpp"
#include "tests/device/hold_sms_kernel.hpp"

namespace megamoe {

/// SMs of a device.
int sms_of(int device);
/// The most SMs of a device that may be held while a call runs there that needs `needed`: all
/// others. Where ranks share a GPU, one rank's part less one: the other ranks' calls may take
/// theirs.
int spare_sms(int device, int needed);

/// Holds SMs of one device with a kernel on a stream of its own: one block per SM, with so much
/// shared memory that nothing shares its SM. The blocks end on their own after `hold`, or once
/// release() is called.
class SmHolder {
 public:
  /// Starts `blocks` blocks and waits until all of them are there. Throws Error if they are not
  /// within two seconds.
  SmHolder(int device, int blocks, std::chrono::nanoseconds hold);
  SmHolder(const SmHolder&) = delete;
  SmHolder& operator=(const SmHolder&) = delete;
  /// Releases and waits.
  ~SmHolder();

  /// The SMs that the blocks said they are on (%smid), ascending, as text: "0-3 7".
  [[nodiscard]] std::string sms() const;
  /// How many different ones.
  [[nodiscard]] int num_sms() const;
  /// True while no block has ended.
  [[nodiscard]] bool holds() const;
  void release();

 private:
  [[nodiscard]] HeldWords& words() const;

  int blocks_;
  cuda::MappedBuffer words_;
  GpuStream stream_;
};

}  // namespace megamoe
