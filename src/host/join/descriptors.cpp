// Descriptors travel over sockets in the abstract name space, which leave nothing behind. A sender
// shows the random word that its receiver gave it through the meeting, so that nobody else's
// descriptor is taken.
#include "host/join/descriptors.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/handshake.hpp"
#include "host/join/meeting.hpp"
#include "host/join/system_error.hpp"
#include "megamoe/error.hpp"

namespace megamoe::join {
namespace {

/// What goes along with a descriptor.
struct Note {
  char word[32];  ///< random, the receiver's
  int rank;       ///< the sender's
};

/// The room for one descriptor beside a message.
struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(sizeof(int))> bytes = {};
};

msghdr message_of(sockaddr_un* to, socklen_t to_size, iovec* note, Control& control) {
  msghdr message{};
  message.msg_name = to;
  message.msg_namelen = to_size;
  message.msg_iov = note;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  return message;
}

class Mailbox {
 public:
  Mailbox()
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
        word_(random_name()) {
    if (!socket_.is_open()) system_error("cannot make a socket for descriptors");
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    // Without a name the system gives a free abstract one.
    if (bind(socket_.number(), reinterpret_cast<sockaddr*>(&own), sizeof(own.sun_family)) != 0)
      system_error("cannot name a socket for descriptors");
  }

  /// Name and word, for the others.
  [[nodiscard]] std::string address() const {
    sockaddr_un own{};
    socklen_t size = sizeof(own);
    if (getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
      system_error("getsockname");
    return word_ + std::string(reinterpret_cast<const char*>(&own), size);
  }

  /// False if the receiver's queue is full.
  [[nodiscard]] bool send(const std::string& address, int own_rank, int file, int to_rank) const {
    sockaddr_un to{};
    Note note{};
    const std::size_t size = address.size() - std::min(address.size(), sizeof(note.word));
    if (size == 0 || size > sizeof(to))
      throw Error(ErrorCode::system, fmt::format("rank {} shows no socket", to_rank));
    std::memcpy(note.word, address.data(), sizeof(note.word));
    std::memcpy(&to, address.data() + sizeof(note.word), size);
    note.rank = own_rank;
    iovec part = {&note, sizeof(note)};
    Control control;
    const msghdr message = message_of(&to, static_cast<socklen_t>(size), &part, control);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &file, sizeof(file));
    if (sendmsg(socket_.number(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return false;
    system_error(fmt::format("cannot send a descriptor to rank {}", to_rank));
  }

  /// Puts the descriptors that have come where their ranks are.
  void receive(std::vector<File>& files) const {
    for (;;) {
      Note note{};
      iovec part = {&note, sizeof(note)};
      Control control;
      msghdr message = message_of(nullptr, 0, &part, control);
      const ssize_t size = recvmsg(socket_.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      if (size < 0) return;
      File file;
      const cmsghdr* const head = CMSG_FIRSTHDR(&message);
      if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(head), sizeof(number));
        file = File(number);
      }
      const bool ours = size == sizeof(note) &&
                        word_.compare(0, sizeof(note.word), note.word, sizeof(note.word)) == 0;
      if (ours && note.rank >= 0 && static_cast<std::size_t>(note.rank) < files.size())
        files[static_cast<std::size_t>(note.rank)] = std::move(file);
    }
  }

  [[nodiscard]] int number() const { return socket_.number(); }

 private:
  File socket_;
  std::string word_;
};

void exchange(const Mailbox& mailbox, const std::vector<std::string>& addresses, int rank, int file,
              std::vector<File>& files, Clock::time_point end) {
  std::vector<bool> sent(files.size(), false);
  sent[static_cast<std::size_t>(rank)] = true;
  for (;;) {
    bool all_sent = true;
    for (std::size_t r = 0; r < files.size(); ++r) {
      if (!sent[r]) sent[r] = mailbox.send(addresses[r], rank, file, static_cast<int>(r));
      all_sent = all_sent && sent[r];
    }
    mailbox.receive(files);
    std::vector<int> missing;
    for (std::size_t r = 0; r < files.size(); ++r) {
      if (!files[r].is_open() && static_cast<int>(r) != rank)
        missing.push_back(static_cast<int>(r));
    }
    if (all_sent && missing.empty()) return;
    if (Clock::now() > end) {
      throw Error(ErrorCode::fault,
                  fmt::format("no descriptor came from ranks {}", fmt::join(missing, ", ")));
    }
    pollfd look = {mailbox.number(), POLLIN, 0};
    // A receiver with a full queue is not seen by poll.
    poll(&look, 1, all_sent ? poll_ms(end) : 1);
  }
}

}  // namespace

std::vector<File> exchange_files(const AllGather& gather, int rank, int file,
                                 std::chrono::nanoseconds deadline) {
  std::optional<Mailbox> mailbox;
  std::string address;
  const Trouble no_socket = trouble_of([&] { address = mailbox.emplace().address(); });
  refuse_together(gather, no_socket);
  const std::vector<std::string> addresses = gather(address);
  std::vector<File> files(addresses.size());
  const Trouble trouble = trouble_of(
      [&] { exchange(*mailbox, addresses, rank, file, files, Clock::now() + deadline); });
  refuse_together(gather, trouble);
  return files;
}

}  // namespace megamoe::join
