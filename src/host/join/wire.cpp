#include "host/join/wire.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "megamoe/error.hpp"

namespace megamoe::join {
namespace {

struct Head {
  static constexpr std::uint64_t kMagic = 0x316e696f6a6f6d6dU;
  std::uint64_t magic;
  std::uint64_t size;
  std::uint32_t kind, step, rank, unused;
};
/// So that a stranger cannot make this process take all memory.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 32U;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses look_up(const char* address, int port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address, std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) {
    throw Error(ErrorCode::system,
                fmt::format("cannot find address '{}': {}", address == nullptr ? "" : address,
                            gai_strerror(error)));
  }
  return {found, &freeaddrinfo};
}

File make_socket(const addrinfo& at) {
  return File(socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol));
}

/// Small frames go and come in turn.
void send_at_once(const File& socket) {
  const int on = 1;
  setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/// Not open, with errno, where it cannot listen.
File listen_on_first(const Addresses& addresses) {
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    File listener = make_socket(*at);
    if (!listener.is_open()) continue;
    const int on = 1;
    // The port of a group that has just ended is free.
    setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener.number(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(listener.number(), SOMAXCONN) == 0)
      return listener;
  }
  return File();
}

bool is_connected(const File& socket, Clock::time_point end) {
  pollfd look = {socket.number(), POLLOUT, 0};
  while (poll(&look, 1, poll_ms(end)) <= 0) {
    if (Clock::now() > end) return false;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

File::~File() {
  if (number_ >= 0) ::close(number_);
}

int poll_ms(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 100));
}

bool Wire::send(const Frame& frame, Clock::time_point end) {
  const Head head = {Head::kMagic, frame.bytes.size(), static_cast<std::uint32_t>(frame.kind),
                     frame.step,   frame.rank,         0};
  std::string all(sizeof(head), '\0');
  std::memcpy(all.data(), &head, sizeof(head));
  all += frame.bytes;
  for (std::size_t sent = 0; is_open() && sent < all.size();) {
    const ssize_t now =
        ::send(socket_.number(), all.data() + sent, all.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now >= 0) {
      sent += static_cast<std::size_t>(now);
    } else if (errno == EAGAIN || errno == EINTR) {
      pollfd look = {socket_.number(), POLLOUT, 0};
      poll(&look, 1, poll_ms(end));
      if (Clock::now() > end) close();
    } else {
      close();
    }
  }
  return is_open();
}

std::optional<Frame> Wire::take() {
  Head head{};
  if (received_.size() < sizeof(head)) return {};
  std::memcpy(&head, received_.data(), sizeof(head));
  if (head.magic != Head::kMagic || head.size > kMostBytes) {
    foreign_ = true;
    close();
    return {};
  }
  if (received_.size() - sizeof(head) < head.size) return {};
  const auto end = sizeof(head) + static_cast<std::size_t>(head.size);
  Frame frame{static_cast<Frame::Kind>(head.kind), head.step, head.rank,
              received_.substr(sizeof(head), end - sizeof(head))};
  received_.erase(0, end);
  return frame;
}

/// Reads what has come; false if nothing had.
bool Wire::fill() {
  std::array<char, 65536> part;
  const ssize_t now = recv(socket_.number(), part.data(), part.size(), MSG_DONTWAIT);
  if (now > 0) {
    received_.append(part.data(), static_cast<std::size_t>(now));
    return true;
  }
  if (now == 0 || (errno != EAGAIN && errno != EINTR)) close();
  return false;
}

std::optional<Frame> Wire::receive() {
  for (;;) {
    if (auto frame = take()) return frame;
    if (!is_open() || !fill()) return {};
  }
}

void Wire::listen() {
  while (is_open() && fill()) {
  }
}

File listen_at(const std::string& address, int port) {
  File listener = listen_on_first(look_up(address.c_str(), port));
  if (!listener.is_open() && errno == EADDRNOTAVAIL)
    listener = listen_on_first(look_up(nullptr, port));
  if (!listener.is_open()) {
    throw Error(ErrorCode::system, fmt::format("rank 0 cannot listen at {}:{}: {}", address, port,
                                               std::strerror(errno)));
  }
  return listener;
}

File connect_to(const std::string& address, int port, Clock::time_point end) {
  const Addresses addresses = look_up(address.c_str(), port);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    File socket = make_socket(*at);
    if (!socket.is_open()) continue;
    const int result = connect(socket.number(), at->ai_addr, at->ai_addrlen);
    if (result != 0 && (errno != EINPROGRESS || !is_connected(socket, end))) continue;
    send_at_once(socket);
    return socket;
  }
  return File();
}

File accept_from(const File& listener) {
  File socket(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.is_open()) send_at_once(socket);
  return socket;
}

}  // namespace megamoe::join
