#pragma once

#include "host/cuda/runtime.hpp"
#include "kernels/release.hpp"

namespace megamoe::cli {

/// Holds streams of several GPUs back until all of them are there, and lets them go together.
class Releaser {
 public:
  explicit Releaser(int streams);
  Releaser(const Releaser&) = delete;
  Releaser& operator=(const Releaser&) = delete;
  ~Releaser();

  /// Makes stream `i` wait for release(); may be captured.
  void hold(int i, cudaStream_t stream);
  /// Before the streams are started.
  void prepare();
  /// Waits until every stream waits, lets them go, and returns the microseconds between the first
  /// and the last one's going, as the host sees it. Throws Error(fault) naming the stream that does
  /// not come in time.
  double release();
  /// Lets go whoever waits, without waiting for anything.
  void let_go();

 private:
  [[nodiscard]] volatile ReleaseWords& words() const;
  void wait_for(const volatile std::uint32_t& word, int i, const char* what) const;

  int streams_;
  cuda::MappedBuffer words_;
};

}  // namespace megamoe::cli
