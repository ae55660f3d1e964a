#include <atomic>

#include <fmt/format.h>

#include "host/layer_state.hpp"

namespace megamoe {
namespace {

using protocol::Phase;
using protocol::Role;
using protocol::u32;
using protocol::u64;

const char* role_name(Role role) {
  switch (role) {
    case Role::none:
      return "host";
    case Role::courier:
      return "courier";
    case Role::scheduler:
      return "scheduler";
    case Role::loader:
      return "loader";
    case Role::math:
      return "math";
    case Role::publisher:
      return "publisher";
  }
  return "unknown role";
}

/// What a phase waits for, with the peer and the index of the wait.
std::string awaited(Phase phase, u32 peer, u64 index) {
  switch (phase) {
    case Phase::none:
      return "nothing";
    case Phase::start:
      return "its turn to start";
    case Phase::counted:
      return fmt::format("earlier route chunks of wave {}", index);
    case Phase::counts:
      return fmt::format("the counts of rank {}", peer);
    case Phase::entry:
      return fmt::format("entry {} of rank {}'s list", index, peer);
    case Phase::pool_slot:
      return fmt::format("the pool slot of block {}", index);
    case Phase::rows:
      return fmt::format("the rows of block {}", index);
    case Phase::act_slot:
      return fmt::format("the act slot of block {}", index);
    case Phase::l1:
      return fmt::format("the L1 tiles of block {}", index);
    case Phase::arrived:
      return fmt::format("the contributions of rank {}", peer);
    case Phase::caller:
      return "the caller of abort()";
    case Phase::tile_room:
      return "room for a finished tile, from the publisher of its CTA";
    case Phase::copies:
      return fmt::format("copies of rank {}'s rows for block {}", peer, index);
    case Phase::free_stage:
      return fmt::format("stage {} of its CTA's ring, from math", index);
    case Phase::full_stage:
      return "a stage of its CTA's ring, from the scheduler";
    case Phase::finished_tile:
      return fmt::format("finished tile {} of its CTA, from math", index);
  }
  return "an unknown phase";
}

/// Waits of a role for another one of its CTA, or for its own copies: no words to compare.
bool is_inner(Phase phase) {
  return phase == Phase::tile_room || phase == Phase::copies || phase == Phase::free_stage ||
         phase == Phase::full_stage || phase == Phase::finished_tile;
}

/// The last call whose counts rank `src` published here.
u32 last_published(const LayerState& s, const protocol::Geometry& g, u32 epoch, u32 src) {
  const auto tag = [&](u32 parity) {
    const u64* word = s.memory.count(g, g.rank, parity, 0, src);
    return protocol::tag_of(s.space->load(word));
  };
  const u32 now = tag(protocol::parity_of(epoch));
  return now == epoch ? now : tag(protocol::parity_of(epoch) ^ 1U);
}

/// Ranks that have not published the counts of call `epoch`: the first to blame, whatever was being
/// waited for.
std::string missing_ranks(const LayerState& s, u32 epoch) {
  const protocol::Geometry g = protocol::make_geometry(s.problem, KernelConfig{}, s.rank, 0);
  std::string text;
  for (u32 src = 0; src < g.ranks; ++src) {
    const u32 last = last_published(s, g, epoch, src);
    if (src == g.rank || last == epoch) continue;
    text += fmt::format("{}rank {} is at call {}, this rank at {}: it is late, or skipped one",
                        text.empty() ? "" : "; ", src, last, epoch);
  }
  return text;
}

std::string own_record(const LayerState& s) {
  const protocol::FaultRecord& r = s.space->record();
  if (r.phase == Phase::start) {
    return fmt::format(
        "rank {}, call {}: CTA {} started although the grid has {}: two calls are in flight on one "
        "Layer",
        r.rank, r.epoch, r.seen, r.expected);
  }
  std::string text =
      fmt::format("rank {}, call {}: the {} of CTA {} gave up waiting for {}", r.rank, r.epoch,
                  role_name(r.role), r.cta, awaited(r.phase, r.peer, r.index));
  if (!is_inner(r.phase)) text += fmt::format(" (expected {}, seen {})", r.expected, r.seen);
  if (r.phase == Phase::counts && protocol::tag_of(r.seen) != r.epoch - 2 &&
      protocol::tag_of(r.seen) != 0) {
    return text + fmt::format(
                      "; rank {} published call {} here, which is neither this call nor the one "
                      "before last",
                      r.peer, protocol::tag_of(r.seen));
  }
  const std::string missing = missing_ranks(s, r.epoch);
  return missing.empty() ? text : text + "; " + missing;
}

/// Ranks whose process has ended: the cause, whoever was being waited for.
std::string lost_text(const LayerState& s) {
  const std::vector<int> lost = s.provider->lost_ranks();
  if (lost.empty()) return {};
  return fmt::format("; the process of rank{} {} has ended", lost.size() == 1 ? "" : "s",
                     fmt::join(lost, ", "));
}

}  // namespace

bool has_record(const LayerState& s) {
  // [A:fault_record] pairs with raise_fault.
  return std::atomic_ref<u32>(s.space->record().flag).load(std::memory_order_acquire) ==
         s.generation;
}

std::string fault_text(const LayerState& s) {
  if (has_record(s)) return own_record(s) + lost_text(s);
  const u64 word = s.space->load(s.memory.abort_word(static_cast<u32>(s.rank)));
  if (protocol::tag_of(word) != s.generation) return {};
  const Phase phase = protocol::abort_phase(word);
  if (phase == Phase::caller) {
    return fmt::format("rank {}, call {}: rank {} called abort()", s.rank, s.epoch(),
                       protocol::abort_rank(word));
  }
  if (phase == Phase::none) {
    return fmt::format("rank {}, call {}: rank {} could not run its call", s.rank, s.epoch(),
                       protocol::abort_rank(word));
  }
  const std::string missing = missing_ranks(s, s.epoch());
  return fmt::format("rank {}, call {}: rank {} gave up waiting for {}{}{}{}", s.rank, s.epoch(),
                     protocol::abort_rank(word), awaited(phase, protocol::abort_peer(word), 0),
                     missing.empty() ? "" : "; ", missing, lost_text(s));
}

}  // namespace megamoe
