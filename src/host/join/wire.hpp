#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace megamoe::join {

using Clock = std::chrono::steady_clock;

/// A file descriptor, closed at the end.
class File {
 public:
  File() = default;
  explicit File(int number) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~File();
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool is_open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// What travels between two processes that join.
struct Frame {
  enum class Kind : std::uint32_t {
    hello = 1,  ///< a rank comes: `step` holds the ranks of its group
    welcome,    ///< it may stay
    text,       ///< what a rank brings to a step
    came,       ///< rank 0 has come to a step
    answer,     ///< the texts of all ranks
    refusal,    ///< why the step has failed
  };
  Kind kind = Kind::hello;
  std::uint32_t step = 0;
  std::uint32_t rank = 0;
  std::string bytes;
};

/// One end of a connection that carries frames.
class Wire {
 public:
  Wire() = default;
  explicit Wire(File socket) : socket_(std::move(socket)) {}

  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  [[nodiscard]] int number() const { return socket_.number(); }
  void close() { socket_ = File(); }

  /// Sends it, waiting for room until `end`. False, and closed, if the other end has gone or takes
  /// nothing.
  bool send(const Frame& frame, Clock::time_point end);
  /// The next frame if it is there, without waiting; nothing also once closed. Closes when the
  /// other end has gone, or sends what is no frame.
  std::optional<Frame> receive();
  /// Takes in what has come, for a later receive(), and notices when the other end has gone.
  void listen();
  /// True once something came that no process of a group sends.
  [[nodiscard]] bool is_foreign() const { return foreign_; }

 private:
  bool fill();
  std::optional<Frame> take();

  File socket_;
  std::string received_;
  bool foreign_ = false;
};

/// A socket that listens at the address, or on all of this machine's where that is not one of them.
/// Throws Error(system) naming both.
File listen_at(const std::string& address, int port);
/// A connection, tried once; not open if nobody listens. Throws Error(system) if the address means
/// nothing.
File connect_to(const std::string& address, int port, Clock::time_point end);
/// The next connection that waits, if any.
File accept_from(const File& listener);

/// Milliseconds until `end` for poll(), at least 0 and at most 100, so that a stopped clock or a
/// lost wake-up costs no more.
int poll_ms(Clock::time_point end);

}  // namespace megamoe::join
