#include "cli/mailbox.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

namespace megamoe::cli {
namespace {

AlignedBuffer map_shared(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::system, fmt::format("cannot map {} bytes between processes", bytes));
  return {static_cast<std::byte*>(memory), bytes};
}

template <class Value>
void copy_in(std::byte* to, const std::vector<Value>& from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(Value));
}

template <class Value>
std::vector<Value> copy_out(const std::byte* from, std::size_t count) {
  std::vector<Value> to(count);
  if (count > 0) std::memcpy(to.data(), from, count * sizeof(Value));
  return to;
}

}  // namespace

Mailbox::Mailbox(const RunRequest& request, const RunCase& run, int rank)
    : experts_(static_cast<std::size_t>(run.problem().experts_per_rank())),
      calls_(static_cast<std::size_t>(request.repeat)),
      values_(static_cast<std::size_t>(run.tokens[static_cast<std::size_t>(rank)].num_tokens) *
              static_cast<std::size_t>(run.problem().hidden)),
      expert_rows_(sizeof(Head)),
      times_(expert_rows_ + experts_ * sizeof(std::int64_t)),
      y_(times_ + calls_ * sizeof(double)),
      differs_(y_ + values_ * sizeof(std::uint16_t)),
      memory_(map_shared(differs_ + calls_)) {}

void Mailbox::set_text(const std::string& text) {
  const std::size_t size = std::min(text.size(), sizeof(Head::text) - 1);
  std::memcpy(head().text, text.data(), size);
  head().text[size] = '\0';
}

void Mailbox::put(const RunOutput& output) {
  head().rows_received = output.rows_received.at(0);
  head().memory_bytes = output.memory_bytes;
  set_text(output.config);
  copy_in(memory_.data() + expert_rows_, output.expert_rows);
  copy_in(memory_.data() + times_, output.times_us);
  copy_in(memory_.data() + y_, output.y.at(0));
  copy_in(memory_.data() + differs_, output.differs);
  head().state.store(State::done, std::memory_order_release);
}

void Mailbox::put_failure(ErrorCode code, const std::string& text) {
  head().code = code;
  set_text(text);
  head().state.store(State::failed, std::memory_order_release);
}

void Mailbox::take(RunOutput& all) const {
  const bool is_first = all.y.empty();
  all.y.push_back(copy_out<std::uint16_t>(memory_.data() + y_, values_));
  all.rows_received.push_back(head().rows_received);
  const auto rows = copy_out<std::int64_t>(memory_.data() + expert_rows_, experts_);
  all.expert_rows.insert(all.expert_rows.end(), rows.begin(), rows.end());
  const auto times = copy_out<double>(memory_.data() + times_, calls_);
  const auto differs = copy_out<std::uint8_t>(memory_.data() + differs_, calls_);
  if (is_first) {
    all.config = head().text;
    all.memory_bytes = head().memory_bytes;
    all.times_us.assign(calls_, 0);
    all.differs.assign(calls_, 0);
  }
  for (std::size_t i = 0; i < calls_; ++i) {
    all.times_us[i] = std::max(all.times_us[i], times[i]);
    all.differs[i] |= differs[i];
  }
}

}  // namespace megamoe::cli
