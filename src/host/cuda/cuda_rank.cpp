#include "host/cuda/cuda_rank.hpp"

#include <algorithm>

namespace megamoe::cuda {

CudaRank::CudaRank(int device, std::size_t local_bytes)
    : device_(device),
      local_(device, local_bytes),
      stage_words_(device, sizeof(StageWords)),
      record_(sizeof(protocol::FaultRecord)),
      bounce_(kBounceBytes),
      deadlines_(kDeadlines * sizeof(Deadlines)) {}

CudaRank::~CudaRank() {
  int previous = 0;
  cudaGetDevice(&previous);
  cudaSetDevice(device_);
  cudaDeviceSynchronize();
  cudaSetDevice(previous);
}

protocol::FaultRecord& CudaRank::record() const {
  return *reinterpret_cast<protocol::FaultRecord*>(record_.host());
}
protocol::FaultRecord* CudaRank::device_record() const {
  return reinterpret_cast<protocol::FaultRecord*>(record_.device());
}
StageWords* CudaRank::stage_words() const {
  return reinterpret_cast<StageWords*>(stage_words_.data());
}

void CudaRank::read(void* to, const void* from, std::size_t bytes) const {
  const std::lock_guard lock(copying_);
  const DeviceGuard guard(device_);
  const BesideCapture beside;
  for (std::size_t at = 0; at < bytes; at += kBounceBytes) {
    const std::size_t part = std::min(kBounceBytes, bytes - at);
    check(cudaMemcpyAsync(bounce_.host(), static_cast<const std::byte*>(from) + at, part,
                          cudaMemcpyDefault, stream_.get()),
          "reading device words");
    check(cudaStreamSynchronize(stream_.get()), "reading device words");
    std::memcpy(static_cast<std::byte*>(to) + at, bounce_.host(), part);
  }
}

void CudaRank::write(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(copying_);
  const DeviceGuard guard(device_);
  const BesideCapture beside;
  for (std::size_t at = 0; at < bytes; at += kBounceBytes) {
    const std::size_t part = std::min(kBounceBytes, bytes - at);
    std::memcpy(bounce_.host(), static_cast<const std::byte*>(from) + at, part);
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, bounce_.host(), part, cudaMemcpyDefault,
                          stream_.get()),
          "writing device words");
    check(cudaStreamSynchronize(stream_.get()), "writing device words");
  }
}

void CudaRank::fill(void* to, int byte, std::size_t bytes) {
  const std::lock_guard lock(copying_);
  const DeviceGuard guard(device_);
  const BesideCapture beside;
  check(cudaMemsetAsync(to, byte, bytes, stream_.get()), "filling device memory");
  check(cudaStreamSynchronize(stream_.get()), "filling device memory");
}

std::shared_ptr<std::byte> CudaRank::allocate(std::size_t bytes) const {
  const auto buffer = std::make_shared<DeviceBuffer>(device_, bytes);
  return {buffer, buffer->data()};
}

void CudaRank::set_deadlines(LocalHeader* header, protocol::u32 generation,
                             const Deadlines& deadlines, cudaStream_t stream, bool capturing) {
  static_assert(offsetof(LocalHeader, first_deadline_ns) ==
                offsetof(LocalHeader, deadline_ns) + sizeof(std::uint64_t));
  static_assert(sizeof(Deadlines) == 2 * sizeof(std::uint64_t));
  if (deadline_generation_ == generation && deadlines_set_ == deadlines) return;
  if (capturing) {
    write(&header->deadline_ns, &deadlines, sizeof(deadlines));
  } else {
    const BesideCapture beside;  // of another stream, by this thread
    auto* value = reinterpret_cast<Deadlines*>(deadlines_.host()) + next_deadline_;
    Milestone& stored = deadlines_stored_[next_deadline_];
    stored.wait();
    *value = deadlines;
    check(cudaMemcpyAsync(&header->deadline_ns, value, sizeof(*value), cudaMemcpyHostToDevice,
                          stream),
          "writing the deadlines");
    stored.record(stream);
    next_deadline_ = (next_deadline_ + 1) % kDeadlines;
  }
  deadline_generation_ = generation;
  deadlines_set_ = deadlines;
}

void CudaRank::restore_deadlines(LocalHeader* header, protocol::u32 generation) {
  set_deadlines(header, generation, Deadlines(deadlines_set_), nullptr, true);
}

void CudaRank::require_addressable(const char* field, const void* pointer, Peers peers) {
  if (pointer == nullptr || std::find(known_.begin(), known_.end(), pointer) != known_.end()) {
    return;
  }
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, pointer), field);
  if (attributes.type == cudaMemoryTypeUnregistered) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} = {} is ordinary host memory; device {} needs memory that it can "
                            "address",
                            field, pointer, device_));
  }
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device_ &&
      peers == Peers::refused) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} = {} is memory of device {}, this rank runs on device {}", field,
                            pointer, attributes.device, device_));
  }
  known_[next_known_] = pointer;
  next_known_ = (next_known_ + 1) % known_.size();
}

void CudaRank::synchronize() const {
  const DeviceGuard guard(device_);
  check(cudaStreamSynchronize(last_stream_), "waiting for a call");
}

}  // namespace megamoe::cuda
