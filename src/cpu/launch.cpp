#include "cpu/launch.hpp"

#include <thread>
#include <vector>

#include "cpu/host_env.hpp"
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

void run_cta(std::span<const RankLaunch> ranks, const LaunchOptions& options) {
  HostEnv entry_env;
  LocalHeader* launch_header = ranks[0].memory->local_header();
  const auto launch_ranks = static_cast<u32>(ranks.size());
  const protocol::Entry entry =
      protocol::enter(entry_env, launch_header, launch_ranks, static_cast<u32>(options.grid));
  const RankLaunch& rank = ranks[entry.rank];
  const auto make_call = [&](HostEnv& env, Role role) {
    return Call<HostEnv>{env,
                         rank.geometry,
                         *rank.memory,
                         rank.record,
                         options.deadline_ns,
                         rank.num_tokens,
                         entry.grid,
                         entry.cta,
                         entry.epoch,
                         rank.generation,
                         role};
  };
  HostEnv courier_env(agent_seed(options, rank.geometry.rank, entry.cta, Role::courier));
  HostEnv math_env(agent_seed(options, rank.geometry.rank, entry.cta, Role::math));
  Call<HostEnv> courier_call = make_call(courier_env, Role::courier);
  Call<HostEnv> math_call = make_call(math_env, Role::math);
  if (!protocol::may_start(courier_call)) return;

  const bool dispatch = rank.data.snapshot.x != nullptr;
  bool gemms_done = false;
  std::thread math([&] {
    Work work(rank.data);
    gemms_done = dispatch ? protocol::SnapshotAgent<HostEnv, Work>(math_call, work).run()
                          : protocol::GemmAgent<HostEnv, Work>(math_call, work).run();
  });
  Work work(rank.data);
  protocol::Courier<HostEnv, Work> courier(
      courier_call, work, dispatch ? protocol::Extent::dispatch : protocol::Extent::layer);
  const bool courier_done = courier.run();
  math.join();
  if (!courier_done || !gemms_done) return;
  if (!protocol::last_out(courier_call)) return;
  add_statistics(courier_call, rank.recv_stats);
  protocol::finish(courier_call, launch_header, launch_ranks);
}

}  // namespace

void run_launch(std::span<const RankLaunch> ranks, const LaunchOptions& options) {
  std::vector<std::thread> ctas;
  ctas.reserve(static_cast<std::size_t>(options.grid));
  for (int i = 0; i < options.grid; ++i) ctas.emplace_back([&] { run_cta(ranks, options); });
  for (std::thread& cta : ctas) cta.join();
}

}  // namespace megamoe::cpu
