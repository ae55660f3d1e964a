#pragma once

#include "host/cuda/runtime.hpp"

namespace megamoe::cuda {

/// A timing event of the current device.
class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// In a captured stream: every replay records the event, as if no graph were there.
  void record_in_replays(cudaStream_t stream) {
    check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal),
          "cudaEventRecordWithFlags");
  }
  /// Microseconds from `begin` to this event; both have passed.
  [[nodiscard]] double us_since(const Event& begin) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// An event of the current device that says whether a stream has come so far.
class Milestone {
 public:
  Milestone() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  Milestone(const Milestone&) = delete;
  Milestone& operator=(const Milestone&) = delete;
  ~Milestone() { cudaEventDestroy(event_); }

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Returns at once when nothing was recorded.
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace megamoe::cuda
