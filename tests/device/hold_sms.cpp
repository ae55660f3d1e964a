#include "tests/device/hold_sms.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "host/environment.hpp"

namespace megamoe {
namespace {

unsigned seen(const unsigned& word) {
  return std::atomic_ref<unsigned>(const_cast<unsigned&>(word)).load();
}

}  // namespace

int sms_of(int device) {
  int sms = 0;
  cuda::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "SMs");
  return sms;
}

int spare_sms(int device, int needed) {
  const int share = environment_ranks_per_gpu();
  return share > 1 ? sms_of(device) / share - 1 : sms_of(device) - needed;
}

HeldWords& SmHolder::words() const { return *reinterpret_cast<HeldWords*>(words_.host()); }

SmHolder::SmHolder(int device, int blocks, std::chrono::nanoseconds time)
    : blocks_(blocks), words_(sizeof(HeldWords)), stream_(device) {
  if (blocks < 1 || blocks > kMostHeld) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} blocks to hold SMs", blocks));
  }
  const cuda::DeviceGuard guard(device);
  int shared = 0;
  cuda::check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
              "shared memory per block");
  cuda::check(launch_hold(reinterpret_cast<HeldWords*>(words_.device()), blocks, shared,
                          static_cast<unsigned long long>(time.count()), stream_.get()),
              "starting the kernel that holds SMs");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const auto all_there = [&] {
    return std::all_of(words().sm, words().sm + blocks, [](const unsigned& w) { return seen(w); });
  };
  while (!all_there()) {
    if (std::chrono::steady_clock::now() > deadline) {
      release();
      cudaStreamSynchronize(stream_.get());
      throw Error(ErrorCode::system,
                  fmt::format("the blocks that hold SMs did not all start: {}", sms()));
    }
    std::this_thread::yield();
  }
}

SmHolder::~SmHolder() {
  release();
  cudaStreamSynchronize(stream_.get());
}

void SmHolder::release() { std::atomic_ref<unsigned>(words().release).store(1); }

bool SmHolder::holds() const {
  return cudaStreamQuery(stream_.get()) == cudaErrorNotReady &&
         std::none_of(words().ended, words().ended + blocks_,
                      [](const unsigned& w) { return seen(w); });
}

int SmHolder::num_sms() const {
  std::vector<unsigned> all(words().sm, words().sm + blocks_);
  std::sort(all.begin(), all.end());
  return static_cast<int>(std::unique(all.begin(), all.end()) - all.begin());
}

std::string SmHolder::sms() const {
  std::vector<unsigned> all(words().sm, words().sm + blocks_);
  std::sort(all.begin(), all.end());
  std::string text;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t last = i;
    while (last + 1 < all.size() && all[last + 1] == all[last] + 1) ++last;
    if (all[i] != 0) {
      text += fmt::format("{}{}", text.empty() ? "" : " ", all[i] - 1);
      if (last > i) text += fmt::format("-{}", all[last] - 1);
    }
    i = last + 1;
  }
  return text;
}

}  // namespace megamoe
