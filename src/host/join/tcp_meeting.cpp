// A star: rank 0 hears every rank and tells all of them. Its decision is the same for all, so a
// step that fails fails everywhere with the same words.
#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <poll.h>

#include "host/join/meeting.hpp"
#include "host/join/wire.hpp"
#include "megamoe/error.hpp"

namespace megamoe::join {
namespace {

using Kind = Frame::Kind;

[[noreturn]] void fail(const std::string& text) { throw Error(ErrorCode::fault, text); }

std::string place(const JoinOptions& o) { return fmt::format("{}:{}", o.address, o.port); }

std::string pack(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    const std::uint64_t size = text.size();
    all.append(reinterpret_cast<const char*>(&size), sizeof(size));
    all += text;
  }
  return all;
}

std::vector<std::string> unpack(const std::string& all) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t size = 0;
    if (all.size() - at < sizeof(size)) fail("rank 0 sent an answer that ends early");
    std::memcpy(&size, all.data() + at, sizeof(size));
    at += sizeof(size);
    if (all.size() - at < size) fail("rank 0 sent an answer that ends early");
    texts.push_back(all.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  return texts;
}

/// Rank 0.
class Hub final : public Meeting {
 public:
  explicit Hub(const JoinOptions& options)
      : options_(options), wires_(static_cast<std::size_t>(options.ranks)) {
    if (options_.ranks == 1) return;
    const File listener = listen_at(options_.address, options_.port);
    const auto end = Clock::now() + options_.deadline;
    while (!all_here()) {
      if (Clock::now() > end) refuse_all(missing_text(absent(), options_, 0));
      wait_for_news(&listener, end);
      for (File socket = accept_from(listener); socket.is_open(); socket = accept_from(listener))
        strangers_.emplace_back(std::move(socket));
      hear_strangers(end);
    }
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    ++step_;
    const auto end = Clock::now() + options_.deadline;
    texts_.assign(wires_.size(), {});
    texts_[0] = text;
    has_text_.assign(wires_.size(), false);
    has_text_[0] = true;
    tell_all({Kind::came, step_, 0, {}}, end);
    for (hear_ranks(); !silent().empty(); hear_ranks()) {
      if (Clock::now() > end) refuse_all(missing_text(silent(), options_, step_));
      wait_for_news(nullptr, end);
    }
    tell_all({Kind::answer, step_, 0, pack(texts_)}, Clock::now() + options_.deadline);
    return texts_;
  }

 private:
  [[nodiscard]] std::vector<int> absent() const {
    std::vector<int> ranks;
    for (std::size_t r = 1; r < wires_.size(); ++r) {
      if (!wires_[r].is_open()) ranks.push_back(static_cast<int>(r));
    }
    return ranks;
  }
  [[nodiscard]] bool all_here() const { return absent().empty(); }
  [[nodiscard]] std::vector<int> silent() const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < has_text_.size(); ++r) {
      if (!has_text_[r]) ranks.push_back(static_cast<int>(r));
    }
    return ranks;
  }

  void tell_all(const Frame& frame, Clock::time_point end) {
    for (std::size_t r = 1; r < wires_.size(); ++r) wires_[r].send(frame, end);
  }
  [[noreturn]] void refuse_all(const std::string& why) {
    tell_all({Kind::refusal, step_, 0, why}, Clock::now() + std::chrono::seconds(1));
    fail(why);
  }

  void wait_for_news(const File* listener, Clock::time_point end) {
    std::vector<pollfd> looks;
    if (listener != nullptr) looks.push_back({listener->number(), POLLIN, 0});
    for (const Wire& wire : wires_) {
      if (wire.is_open()) looks.push_back({wire.number(), POLLIN, 0});
    }
    for (const Wire& wire : strangers_) looks.push_back({wire.number(), POLLIN, 0});
    poll(looks.data(), looks.size(), poll_ms(end));
  }

  /// Takes in those who have said who they are.
  void hear_strangers(Clock::time_point end) {
    for (Wire& stranger : strangers_) {
      const auto frame = stranger.receive();
      if (!frame) continue;
      const std::string why = why_unwelcome(*frame);
      if (!why.empty()) {
        stranger.send({Kind::refusal, 0, 0, why}, end);
        stranger.close();
      } else if (stranger.send({Kind::welcome, 0, 0, {}}, end)) {
        wires_[frame->rank] = std::exchange(stranger, Wire());
      }
    }
    const auto is_gone = [](const Wire& wire) { return !wire.is_open(); };
    strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(), is_gone),
                     strangers_.end());
    // One who came and went may come again.
    for (Wire& wire : wires_) wire.listen();
  }

  [[nodiscard]] std::string why_unwelcome(const Frame& hello) const {
    const auto ranks = static_cast<std::uint32_t>(options_.ranks);
    if (hello.kind != Kind::hello) return "rank 0 waits for ranks to come";
    if (hello.step != ranks) {
      return fmt::format("rank {} came for a group of {} ranks, rank 0 at {} has {}", hello.rank,
                         hello.step, place(options_), ranks);
    }
    if (hello.rank == 0 || hello.rank >= ranks)
      return fmt::format("rank = {} came to rank 0 of {}", hello.rank, ranks);
    if (wires_[hello.rank].is_open())
      return fmt::format("rank {} is at {} already", hello.rank, place(options_));
    return {};
  }

  /// Notes the texts of this step; a rank that has gone is refused with all others.
  void hear_ranks() {
    for (std::size_t r = 1; r < wires_.size(); ++r) {
      while (const auto frame = wires_[r].receive()) {
        if (frame->kind != Kind::text || frame->step != step_) continue;
        texts_[r] = frame->bytes;
        has_text_[r] = true;
      }
      if (!wires_[r].is_open() && !has_text_[r]) {
        refuse_all(fmt::format("the process of rank {} has ended or left before step {} of joining",
                               r, step_));
      }
    }
  }

  JoinOptions options_;
  std::vector<Wire> wires_;      ///< of each rank but 0
  std::vector<Wire> strangers_;  ///< who have not said who they are
  std::uint32_t step_ = 0;
  std::vector<std::string> texts_;
  std::vector<bool> has_text_;
};

/// Any other rank.
class Spoke final : public Meeting {
 public:
  explicit Spoke(const JoinOptions& options) : options_(options) {
    const auto end = Clock::now() + options_.deadline;
    while (!is_welcome(end)) {
      if (Clock::now() > end) {
        fail(fmt::format("rank {}: {}, where rank 0 was to listen at {}", options_.rank,
                         missing_text({0}, options_, 0), place(options_)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    ++step_;
    auto end = Clock::now() + options_.deadline;
    const auto rank = static_cast<std::uint32_t>(options_.rank);
    wire_.send({Kind::text, step_, rank, text}, end);
    bool has_come = false;
    for (;;) {
      const std::optional<Frame> frame = wire_.receive();
      if (!frame && !wire_.is_open()) fail_lost();
      if (!frame) {
        if (Clock::now() > end) fail_late(has_come);
        pollfd look = {wire_.number(), POLLIN, 0};
        poll(&look, 1, poll_ms(end));
        continue;
      }
      const bool refused = frame->kind == Kind::refusal;
      if (refused && (frame->step == step_ || frame->step == 0)) fail(frame->bytes);
      if (frame->step != step_) continue;
      if (frame->kind == Kind::answer) return checked(unpack(frame->bytes));
      if (frame->kind == Kind::came && !has_come) {
        // From now on rank 0 decides who is late, and needs a moment to say so.
        has_come = true;
        end = Clock::now() + options_.deadline + kToSaySo;
      }
    }
  }

 private:
  /// Tries once to come to rank 0. False: nobody is there yet, or it went away.
  bool is_welcome(Clock::time_point end) {
    wire_ = Wire(connect_to(options_.address, options_.port, end));
    if (!wire_.is_open()) return false;
    wire_.send({Kind::hello,
                static_cast<std::uint32_t>(options_.ranks),
                static_cast<std::uint32_t>(options_.rank),
                {}},
               end);
    while (wire_.is_open() && Clock::now() <= end) {
      const std::optional<Frame> frame = wire_.receive();
      if (frame && frame->kind == Kind::welcome) return true;
      if (frame && frame->kind == Kind::refusal) fail(frame->bytes);
      if (wire_.is_foreign())
        fail(fmt::format("what answers at {} is no rank 0 of megamoe", place(options_)));
      pollfd look = {wire_.number(), POLLIN, 0};
      poll(&look, 1, poll_ms(end));
    }
    return false;
  }

  [[nodiscard]] std::vector<std::string> checked(std::vector<std::string> texts) const {
    if (texts.size() != static_cast<std::size_t>(options_.ranks))
      fail(fmt::format("rank 0 sent {} texts for {} ranks", texts.size(), options_.ranks));
    return texts;
  }
  [[noreturn]] void fail_lost() const {
    fail(fmt::format("rank {}: the process of rank 0 has ended or left before step {} of joining",
                     options_.rank, step_));
  }
  [[noreturn]] void fail_late(bool has_come) const {
    if (!has_come)
      fail(fmt::format("rank {}: {}", options_.rank, missing_text({0}, options_, step_)));
    fail(fmt::format("rank {}: rank 0 came to step {} of joining and did not end it", options_.rank,
                     step_));
  }

  static constexpr auto kToSaySo = std::chrono::seconds(2);

  JoinOptions options_;
  Wire wire_;
  std::uint32_t step_ = 0;
};

}  // namespace

std::unique_ptr<Meeting> meet_over_tcp(const JoinOptions& options) {
  if (options.rank == 0) return std::make_unique<Hub>(options);
  return std::make_unique<Spoke>(options);
}

}  // namespace megamoe::join
