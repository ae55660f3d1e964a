#include "cpu/launch.hpp"

#include <atomic>
#include <cerrno>
#include <deque>
#include <functional>
#include <latch>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cpu/host_env.hpp"
#include "megamoe/error.hpp"
#include "protocol/agents/courier.hpp"
#include "protocol/agents/snapshot_agent.hpp"
#include "protocol/leave.hpp"

namespace megamoe::cpu {
namespace {

using protocol::Call;
using protocol::Role;
using protocol::u32;

/// Adds the rows that each routed expert received in this call.
void add_statistics(Call<HostEnv>& c, std::int64_t* stats) {
  if (stats == nullptr) return;
  for (u32 wave = 0; wave < c.g.num_waves; ++wave) {
    for (u32 src = 0; src < c.g.ranks; ++src) {
      for (u32 e = 0; e < c.g.experts_per_rank; ++e) {
        stats[e] += protocol::known_end(c, wave, src, e) - protocol::known_begin(c, wave, src, e);
      }
    }
  }
}

std::uint64_t agent_seed(const LaunchOptions& options, u32 rank, u32 cta, Role role) {
  if (options.delay_seed == 0) return 0;
  const std::uint64_t agent =
      (static_cast<std::uint64_t>(rank) << 32U | cta) * 8 + static_cast<std::uint64_t>(role) + 1;
  const std::uint64_t mixed = (options.delay_seed + agent) * 0x9E3779B97F4A7C15U;
  return mixed == 0 ? 1 : mixed;
}

/// In the system's own words where it has some.
std::string text_of(const std::exception& error) {
  if (const auto* refused = dynamic_cast<const std::system_error*>(&error))
    return refused->code().message();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
}

/// One CTA: a courier and a GEMM agent, each on a thread of its own.
class Cta {
 public:
  explicit Cta(const Launch& launch) : launch_(launch) {}

  void run_courier() {
    HostEnv entry_env;
    LocalHeader* launch_header = launch_.ranks[0].memory->local_header();
    const auto launch_ranks = static_cast<u32>(launch_.ranks.size());
    entry_ = protocol::enter(entry_env, launch_header, launch_ranks,
                             static_cast<u32>(launch_.options.grid));
    rank_ = &launch_.ranks[entry_.rank];
    HostEnv env(agent_seed(launch_.options, rank_->geometry.rank, entry_.cta, Role::courier));
    Call<HostEnv> call = make_call(env, Role::courier);
    starts_ = protocol::may_start(call);
    entered_.count_down();
    if (!starts_) return;
    const bool done = guarded(courier_failure_, [&] {
      Work work(rank_->data);
      return protocol::Courier<HostEnv, Work>(
                 call, work, dispatch() ? protocol::Extent::dispatch : protocol::Extent::layer)
          .run();
    });
    math_done_.wait();
    if (!done || !gemms_done_) return;
    if (!protocol::last_out(call)) return;
    add_statistics(call, rank_->recv_stats);
    protocol::finish(call, launch_header, launch_ranks);
  }

  void run_math() {
    entered_.wait();
    if (!starts_) return;
    HostEnv env(agent_seed(launch_.options, rank_->geometry.rank, entry_.cta, Role::math));
    Call<HostEnv> call = make_call(env, Role::math);
    gemms_done_ = guarded(math_failure_, [&] {
      Work work(rank_->data);
      return dispatch() ? protocol::SnapshotAgent<HostEnv, Work>(call, work).run()
                        : protocol::GemmAgent<HostEnv, Work>(call, work).run();
    });
    math_done_.count_down();
  }

  /// Throws what ended one of the two roles, after both have ended.
  void throw_failure() const {
    const std::string& failure = courier_failure_.empty() ? math_failure_ : courier_failure_;
    if (failure.empty()) return;
    throw Error(ErrorCode::system, fmt::format("rank {}: a thread of CTA {} failed: {}",
                                               rank_->geometry.rank, entry_.cta, failure));
  }

 private:
  [[nodiscard]] bool dispatch() const { return rank_->data.snapshot.x != nullptr; }

  Call<HostEnv> make_call(HostEnv& env, Role role) const {
    return {env,
            rank_->geometry,
            *rank_->memory,
            rank_->record,
            launch_.options.deadline_ns,
            rank_->num_tokens,
            entry_.grid,
            entry_.cta,
            entry_.epoch,
            rank_->generation,
            role};
  }

  /// What `role` gives. If it throws, as it does without memory, all ranks are told that this call
  /// is over.
  template <class Run>
  bool guarded(std::string& failure, Run role) {
    try {
      return role();
    } catch (const std::exception& error) {
      failure = text_of(error);
    }
    HostEnv env;
    const u32 rank = rank_->geometry.rank;
    protocol::raise_abort(
        env, *rank_->memory, rank_->geometry.ranks,
        protocol::abort_value(rank_->generation, rank, protocol::Phase::none, rank));
    return false;
  }

  const Launch& launch_;
  const RankLaunch* rank_ = nullptr;
  protocol::Entry entry_;
  bool starts_ = false;
  bool gemms_done_ = false;
  std::string courier_failure_, math_failure_;
  std::latch entered_{1};    ///< before it: rank_, entry_, starts_
  std::latch math_done_{1};  ///< before it: gemms_done_
};

/// Threads that wait until all of them are there, and that end without having done anything when
/// one cannot be made.
class Crew {
 public:
  ~Crew() {
    if (order_ == Order::wait) give(Order::leave);
    for (std::thread& thread : threads_) thread.join();
  }

  void add(std::function<void()> work) {
    threads_.emplace_back([this, run = std::move(work)] {
      order_.wait(Order::wait);
      if (order_ == Order::go) run();
    });
  }
  void go() { give(Order::go); }

 private:
  enum class Order { wait, go, leave };
  void give(Order order) {
    order_ = order;
    order_.notify_all();
  }

  std::atomic<Order> order_ = Order::wait;
  std::vector<std::thread> threads_;
};

std::string ranks_text(std::span<const RankLaunch> ranks) {
  const u32 first = ranks.front().geometry.rank;
  if (ranks.size() == 1) return fmt::format("rank {}", first);
  return fmt::format("virtual ranks {}..{}", first, ranks.back().geometry.rank);
}

/// Adds the two threads of each CTA of a launch.
void add_threads(Crew& crew, const Launch& launch, std::deque<Cta>& ctas) {
  int made = 0;
  const auto add = [&](auto work) {
    if (launch.options.thread_limit > 0 && made == launch.options.thread_limit)
      throw std::system_error(EAGAIN, std::generic_category());
    crew.add(std::move(work));
    ++made;
  };
  try {
    for (int i = 0; i < launch.options.grid; ++i) {
      Cta& cta = ctas.emplace_back(launch);
      add([&cta] { cta.run_courier(); });
      add([&cta] { cta.run_math(); });
    }
  } catch (const std::exception& error) {
    throw Error(ErrorCode::system,
                fmt::format("{}: only {} of the {} threads of the call could be made: {}; it needs "
                            "more threads or memory, or fewer CTAs than {}",
                            ranks_text(launch.ranks), made, 2 * launch.options.grid, text_of(error),
                            launch.options.grid));
  }
}

}  // namespace

void run_launches(std::span<const Launch> launches) {
  std::deque<Cta> ctas;
  {
    Crew crew;
    for (const Launch& launch : launches) add_threads(crew, launch, ctas);
    crew.go();
  }
  for (const Cta& cta : ctas) cta.throw_failure();
}

}  // namespace megamoe::cpu
