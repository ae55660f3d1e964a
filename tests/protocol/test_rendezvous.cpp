// Meetings over TCP: who is missing, gone, strange or wrong is named on every rank.
#include <chrono>
#include <functional>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "host/handshake.hpp"
#include "host/join/descriptors.hpp"
#include "host/join/meeting.hpp"
#include "host/join/process_watch.hpp"
#include "host/join/segment.hpp"
#include "host/join/wire.hpp"

namespace megamoe::join {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// A socket of this machine that listens, and its port.
struct Listener {
  Listener() : file(listen_at("127.0.0.1", 0)) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(file.number(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
  }
  File file;
  int port = 0;
};

JoinOptions options_for(int ranks, int rank, int port, std::chrono::nanoseconds deadline = 20s) {
  JoinOptions options;
  options.ranks = ranks;
  options.rank = rank;
  options.address = "127.0.0.1";
  options.port = port;
  options.deadline = deadline;
  return options;
}

/// What each rank's thread returns, or the Error that ended it.
std::vector<std::string> on_ranks(int ranks, const std::function<std::string(int)>& body) {
  std::vector<std::string> reports(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& report = reports[static_cast<std::size_t>(rank)];
      try {
        report = body(rank);
      } catch (const Error& error) {
        report = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return reports;
}

TEST(Rendezvous, EveryRankGetsAllBytesInOrder) {
  constexpr int kRanks = 5;
  const int port = Listener().port;
  const auto reports = on_ranks(kRanks, [&](int rank) -> std::string {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * (kRanks - rank)));
    const auto meeting = meet(options_for(kRanks, rank, port));
    for (std::size_t step = 0; step < 20; ++step) {
      // Sizes beyond what sockets hold, empty ones, and zeros.
      const auto text_of = [&](int r) {
        return std::string(step % 4 == 3 ? 1'000'003 : step * static_cast<std::size_t>(r),
                           static_cast<char>(r * static_cast<int>(step)));
      };
      const auto texts = meeting->all_gather(text_of(rank));
      for (int r = 0; r < kRanks; ++r) {
        if (texts.at(static_cast<std::size_t>(r)) != text_of(r))
          return fmt::format("step {}: wrong text of rank {}", step, r);
      }
    }
    return "right";
  });
  EXPECT_THAT(reports, Each("right"));
}

TEST(Rendezvous, AGroupThatComesAgainAtOnceFindsItsPortFree) {
  const int port = Listener().port;
  const auto reports = on_ranks(3, [&](int rank) -> std::string {
    for (int group = 0; group < 30; ++group) {
      const auto meeting = meet(options_for(3, rank, port));
      const std::string text = fmt::format("{} {}", group, rank);
      if (meeting->all_gather(text).at(static_cast<std::size_t>(rank)) != text) return "mixed up";
    }
    return "right";
  });
  EXPECT_THAT(reports, Each("right"));
}

TEST(Rendezvous, WhoDoesNotComeIsNamedByAll) {
  const int port = Listener().port;
  const auto reports = on_ranks(4, [&](int rank) -> std::string {
    if (rank == 2) return "ranks 2 of 4 did not come";
    meet(options_for(4, rank, port, rank == 0 ? 400ms : 20s))->all_gather("");
    return "met";
  });
  EXPECT_THAT(reports, Each(HasSubstr("ranks 2 of 4 did not come")));
}

TEST(Rendezvous, WithoutRankZeroTheOthersSayWhereItWasToBe) {
  const int port = Listener().port;
  const auto reports = on_ranks(2, [&](int rank) -> std::string {
    if (rank == 0) return fmt::format("ranks 0 of 2 did not come 127.0.0.1:{}", port);
    meet(options_for(2, rank, port, 300ms));
    return "met";
  });
  EXPECT_THAT(reports, Each(AllOf(HasSubstr("ranks 0 of 2 did not come"),
                                  HasSubstr(fmt::format("127.0.0.1:{}", port)))));
}

TEST(Rendezvous, WhoIsLateForAStepIsNamedByAllAndMayComeToTheNext) {
  const int port = Listener().port;
  const auto reports = on_ranks(3, [&](int rank) -> std::string {
    const auto meeting = meet(options_for(3, rank, port, rank == 0 ? 400ms : 20s));
    meeting->all_gather("");
    if (rank == 1) std::this_thread::sleep_for(700ms);
    std::string text;
    try {
      meeting->all_gather("");
    } catch (const Error& error) {
      text = error.what();
    }
    // Rank 0 waits for 400 ms from when it comes.
    if (rank != 1) std::this_thread::sleep_for(300ms);
    return meeting->all_gather("").size() == 3 ? text : "alone";
  });
  EXPECT_THAT(reports, Each(HasSubstr("ranks 1 of 3 did not come to step 2 of joining")));
}

TEST(Rendezvous, WhoGoesIsNamedAtOnce) {
  const int port = Listener().port;
  const auto start = Clock::now();
  for (const int gone : {0, 1}) {
    const auto reports = on_ranks(3, [&](int rank) -> std::string {
      const auto meeting = meet(options_for(3, rank, port));
      meeting->all_gather("");
      if (rank == gone) return fmt::format("the process of rank {} has ended", gone);
      meeting->all_gather("");
      return "met";
    });
    EXPECT_THAT(reports, Each(HasSubstr(fmt::format("the process of rank {} has ended", gone))));
  }
  EXPECT_LT(Clock::now() - start, 10s);
}

TEST(Rendezvous, AnotherNumberOfRanksIsRefused) {
  const int port = Listener().port;
  const auto reports = on_ranks(2, [&](int rank) -> std::string {
    meet(options_for(rank == 0 ? 2 : 3, rank, port, 1s));
    return "met";
  });
  EXPECT_THAT(reports[0], HasSubstr("ranks 1 of 2 did not come"));
  EXPECT_THAT(reports[1], HasSubstr("rank 1 came for a group of 3 ranks, rank 0 at 127.0.0.1:"));
}

TEST(Rendezvous, StrangersAreNotTakenForRanks) {
  const int port = Listener().port;
  const auto reports = on_ranks(3, [&](int rank) -> std::string {
    if (rank < 2) return meet(options_for(2, rank, port))->all_gather("")[0] + "met";
    // Connects, says something else or nothing, and goes.
    for (int i = 0; i < 5; ++i) {
      const File socket = connect_to("127.0.0.1", port, Clock::now() + 1s);
      const std::string text(i == 0 ? 0 : 100, 'x');
      if (socket.is_open()) (void)!::send(socket.number(), text.data(), text.size(), MSG_NOSIGNAL);
      std::this_thread::sleep_for(5ms);
    }
    return "met";
  });
  EXPECT_THAT(reports, Each("met"));
}

TEST(Rendezvous, AnotherServiceAtThePortIsNoRankZero) {
  const Listener other;
  std::string text;
  std::thread rank([&] {
    try {
      meet(options_for(2, 1, other.port, 5s));
    } catch (const Error& error) {
      text = error.what();
    }
  });
  File socket;
  for (const auto end = Clock::now() + 5s; !socket.is_open() && Clock::now() < end;)
    socket = accept_from(other.file);
  const std::string words = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
  (void)!::send(socket.number(), words.data(), words.size(), MSG_NOSIGNAL);
  rank.join();
  EXPECT_THAT(text, HasSubstr(fmt::format("127.0.0.1:{} is no rank 0", other.port)));
}

TEST(Rendezvous, OptionsThatMakeNoSenseAreRefusedByName) {
  const auto refused = [](const JoinOptions& options) -> std::string {
    try {
      meet(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "met";
  };
  EXPECT_THAT(refused(options_for(0, 0, 1)), HasSubstr("ranks = 0"));
  EXPECT_THAT(refused(options_for(2, 2, 1)), HasSubstr("rank = 2"));
  EXPECT_THAT(refused(options_for(2, 0, 65536)), HasSubstr("port = 65536"));
  EXPECT_THAT(refused(options_for(2, 0, 1, 0s)), HasSubstr("deadline = 0"));
  EXPECT_THAT(refused(options_for(2, 0, 1, std::chrono::nanoseconds::max())),
              HasSubstr("deadline = 9223372036854775807 ns is more than"));
  JoinOptions nowhere;
  nowhere.ranks = 1;
  EXPECT_THAT(refused(nowhere), HasSubstr("group name ''"));
}

TEST(CallersCollective, AWrongNumberOfTextsIsRefused) {
  JoinOptions options;
  options.ranks = 2;
  options.all_gather = [](const std::string& text) { return std::vector<std::string>{text}; };
  try {
    meet(options)->all_gather("a");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 texts for 2 ranks"));
  }
}

TEST(Descriptors, EveryRankGetsTheFileOfEachOther) {
  constexpr int kRanks = 12;  // more than a socket's queue holds
  const int port = Listener().port;
  const auto reports = on_ranks(kRanks, [&](int rank) -> std::string {
    const auto meeting = meet(options_for(kRanks, rank, port));
    const AllGather gather = [&](const std::string& text) { return meeting->all_gather(text); };
    const File own(memfd_create("test", MFD_CLOEXEC));
    if (pwrite(own.number(), &rank, sizeof(rank), 0) != sizeof(rank)) return "no file";
    const std::vector<File> files = exchange_files(gather, rank, own.number(), 10s);
    for (int r = 0; r < kRanks; ++r) {
      int content = -1;
      const File& file = files.at(static_cast<std::size_t>(r));
      if (r == rank ? file.is_open() : pread(file.number(), &content, sizeof(content), 0) < 0)
        return fmt::format("file of rank {}", r);
      if (r != rank && content != r) return fmt::format("rank {} sent the file of {}", r, content);
    }
    return "right";
  });
  EXPECT_THAT(reports, Each("right"));
}

TEST(Troubles, AreRefusedTogetherWithRanksAndReasons) {
  const int port = Listener().port;
  const auto reports = on_ranks(3, [&](int rank) -> std::string {
    const auto meeting = meet(options_for(3, rank, port));
    const AllGather gather = [&](const std::string& text) { return meeting->all_gather(text); };
    refuse_together(gather, {});
    Trouble trouble;
    if (rank != 1) trouble = Error(ErrorCode::unsupported, "no GPU");
    try {
      refuse_together(gather, trouble);
    } catch (const Error& error) {
      return fmt::format("{} {}", error.code() == ErrorCode::unsupported, error.what());
    }
    return "accepted";
  });
  EXPECT_THAT(reports, Each("true ranks 0, 2: no GPU"));
}

TEST(Troubles, ThatAllShareAreSaidOnce) {
  const auto same = [](const std::string& text) { return std::vector<std::string>(3, text); };
  try {
    refuse_together(same, Error(ErrorCode::system, "no room"));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no room");
  }
}

// A page that is not there when it is first touched ends the process with a signal.
TEST(Segments, MoreThanSharedMemoryHoldsIsAnError) {
  struct statvfs room {};
  ASSERT_EQ(statvfs("/dev/shm", &room), 0);
  if (room.f_blocks == 0) GTEST_SKIP() << "/dev/shm has no limit";
  const SegmentName name(fmt::format("/megamoe.test.{}", getpid()));
  const std::size_t bytes = room.f_frsize * (room.f_blocks + 1);
  try {
    map_segment(name.text(), bytes, true);
    ADD_FAILURE() << "mapped " << bytes << " bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_EQ(error.what(), fmt::format("cannot size shared memory {} to {} bytes: No space left "
                                        "on device",
                                        name.text(), bytes));
  }
}

TEST(ProcessNumbers, AnotherProcessOfTheSameNumberIsAnother) {
  Process own = Process::own();
  EXPECT_TRUE(own.is_running());
  ++own.start;
  EXPECT_FALSE(own.is_running());
}

}  // namespace
}  // namespace megamoe::join
