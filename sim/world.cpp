#include "sim/world.hpp"

#include <algorithm>
#include <cstring>

#include "sim/random.hpp"

namespace megamoe::sim {
namespace {

/// Memory for the regions of all ranks. The simulator keeps words and payload itself, so only
/// addresses matter, and the few plain values that the protocol keeps in its local header.
std::byte* region(std::size_t bytes, std::size_t& used) {
  static thread_local std::vector<std::unique_ptr<std::byte[]>> chunks;
  static thread_local std::vector<std::size_t> sizes;
  const std::size_t index = used++;
  if (index == chunks.size()) {
    chunks.emplace_back();
    sizes.push_back(0);
  }
  if (sizes[index] < bytes) {
    chunks[index] = std::make_unique_for_overwrite<std::byte[]>(bytes);
    sizes[index] = bytes;
  }
  return chunks[index].get();
}

/// Enough for any run that makes progress.
u64 max_steps(const Scenario& s) {
  return 100'000U + u64{s.calls} * s.layers * s.ranks * s.ctas * (20'000U + 1000U * u64{s.ranks});
}

}  // namespace

World::World(const Scenario& scenario, u64 seed, Mutant mutant, Policy& policy,
             std::FILE* live_trace)
    : s_(scenario), seed_(seed), mutant_(mutant) {
  vary_sizes(seed);
  make_groups(seed);
  make_launches();
  const std::vector<Place> all_places = places();
  machine_ = std::make_unique<Machine>(policy, max_steps(s_), all_places, make_payload(all_places),
                                       make_mutation(mutant), live_trace);
  add_words();
  if (s_.trouble != Trouble::none && s_.trouble != Trouble::missing_cta)
    machine_->set_deadline(kDeadlineNs);
  for (u32 g = 0; g < s_.layers; ++g) reset_words(g);
}

void World::vary_sizes(u64 seed) {
  Random random(seed ^ 0x5151U);
  warps_ = s_.roles == Roles::warps || (s_.roles == Roles::either && random.percent(50));
  if (s_.waves > 1) warps_ = false;  // the kernel has one
  Random shapes(seed ^ 0x57A6U);
  shape_.stages = 2 + shapes.below(CtaShared::kMaxStages - 1);
  constexpr u32 kTileStages[] = {1, 1, 2, 4};
  shape_.tile_stages = kTileStages[shapes.below(4)];
  shape_.whole_tokens = shapes.below(2);
  shape_.sum_granules = 1 + shapes.below(2);
  if (!s_.random_sizes) return;
  s_.pool_slots = 1 + random.below(3);
  s_.act_slots = 2 + random.below(2);
  s_.lag = 1 + random.below(s_.act_slots - 1);
  if (s_.pool_slots > 1 && random.percent(30)) {
    s_.group = 2;
    s_.lag = 2 * (1 + random.below(2));
    s_.act_slots = s_.lag + s_.group;
  }
  s_.block_rows = 1U << random.below(3);
  s_.pull_rows = 1U << random.below(s_.block_rows == 1 ? 1 : 2);
  s_.route_tokens = 1U << random.below(3);
  s_.sum_tokens = 1 + random.below(2);
}

Problem World::make_problem() const {
  Problem p;
  p.ranks = static_cast<int>(s_.ranks);
  p.experts = static_cast<int>(s_.ranks * s_.experts_per_rank);
  p.top_k = static_cast<int>(s_.top_k);
  p.shared_experts = static_cast<int>(s_.shared_experts);
  p.hidden = p.intermediate = static_cast<int>(s_.granules) * kGranule;
  p.max_tokens_per_rank = static_cast<int>(s_.capacity);
  return p;
}

void World::make_groups(u64 seed) {
  std::size_t used = 0;
  for (u32 group = 0; group < s_.layers; ++group) {
    Group& g = groups_.emplace_back();
    g.problem = make_problem();
    g.routing = std::make_unique<RoutingTable>(s_, group, seed);
    g.records.resize(s_.ranks);
    std::vector<std::byte*> bases;
    for (u32 r = 0; r < s_.ranks; ++r)
      bases.push_back(region(symmetric_layout(g.problem).bytes, used));
    for (u32 r = 0; r < s_.ranks; ++r) {
      std::byte* local = region(local_layout(g.problem).bytes, used);
      g.memory.emplace_back(g.problem, bases.data(), local);
      std::memset(static_cast<void*>(g.memory.back().local_header()), 0, sizeof(LocalHeader));
      KernelConfig c;
      c.pool_slots = static_cast<int>(s_.pool_slots);
      c.act_slots = static_cast<int>(s_.act_slots);
      c.num_waves = static_cast<int>(s_.waves);
      c.route_tokens = static_cast<int>(s_.route_tokens);
      c.sum_tokens = static_cast<int>(s_.sum_tokens);
      c.lag_blocks = static_cast<int>(mutant_ == Mutant::lag_of_act_slots ? s_.act_slots : s_.lag);
      c.group_blocks =
          static_cast<int>(mutant_ == Mutant::group_beyond_pool ? s_.pool_slots + 1 : s_.group);
      if (mutant_ == Mutant::group_beyond_pool) c.lag_blocks = c.group_blocks;
      if (mutant_ == Mutant::group_beyond_act) c.act_slots = c.lag_blocks + c.group_blocks - 1;
      const bool wide = s_.mixed_tiles && r % 2 == 1;
      c.l1_tile_channels = c.l2_tile_channels =
          wide ? kGranule * static_cast<int>(s_.granules) : kGranule;
      protocol::Geometry geometry = protocol::make_geometry(
          g.problem, c, static_cast<int>(r), static_cast<u32>(list_entries(g.problem)));
      geometry.block_rows = s_.block_rows;
      geometry.pull_rows = s_.pull_rows;
      g.geometry.push_back(geometry);
    }
  }
}

void World::make_launches() {
  const u32 launches = s_.virtual_ranks ? 1 : s_.ranks;
  for (u32 d = 0; d < launches; ++d) devices_.push_back({d, s_.slots});
  for (u32 group = 0; group < s_.layers; ++group) {
    for (u32 i = 0; i < launches; ++i) {
      Launch l;
      l.group = group;
      l.first_rank = i;
      l.ranks = s_.virtual_ranks ? s_.ranks : 1;
      l.grid = s_.ctas * l.ranks;
      if (mutant_ == Mutant::fewer_ctas_than_ranks) l.grid = l.ranks - 1;
      if (mutant_ == Mutant::no_reserve_for_other_layers) l.grid = s_.slots;
      l.device = &devices_[i];
      l.first_slot = num_slots_;
      num_slots_ += 1 + l.grid * roles_per_cta() * 2;
      launches_.push_back(l);
    }
  }
}

std::vector<Place> World::places() const {
  std::vector<Place> all(num_slots_);
  u32 cta = 0;
  for (const Launch& l : launches_) {
    // A host is a device of its own.
    all[l.first_slot] = {static_cast<u32>(devices_.size()) + cta, cta};
    ++cta;
    for (u32 block = 0; block < l.grid; ++block, ++cta) {
      const u32 first = l.first_slot + 1 + block * roles_per_cta() * 2;
      for (u32 i = 0; i < roles_per_cta() * 2; ++i) all[first + i] = {l.device->number, cta};
    }
  }
  return all;
}

Payload World::make_payload(const std::vector<Place>& all_places) const {
  const protocol::Geometry& g = groups_[0].geometry[0];
  std::array<Payload::Shape, kCellKinds> shapes;
  const auto set = [&](CellKind kind, u32 i, u32 j, u32 k) {
    shapes[static_cast<std::size_t>(kind)] = {i, j, k};
  };
  set(CellKind::x, s_.capacity, 1, 1);
  set(CellKind::x_scales, s_.capacity, 1, 1);
  set(CellKind::topk, s_.capacity, 1, 1);
  set(CellKind::pool, g.pool_slots, g.block_rows, 1);
  set(CellKind::pool_scales, g.pool_slots, g.block_rows, 1);
  set(CellKind::row_meta, g.meta_slots(), g.block_rows, 1);
  set(CellKind::act, g.act_slots, g.block_rows, g.intermediate_granules);
  set(CellKind::combine, g.contributions, s_.capacity, g.hidden_granules);
  set(CellKind::y, s_.capacity, g.hidden_granules, 1);
  set(CellKind::stage, std::max(s_.ctas, s_.slots), CtaShared::kMaxStages, 1);
  set(CellKind::done_slot, std::max(s_.ctas, s_.slots), CtaShared::kDoneSlots, 1);
  return {all_places, s_.layers, s_.ranks, shapes};
}

Mutation World::make_mutation(Mutant mutant) const {
  const protocol::Geometry& g = groups_[0].geometry[0];
  Mutation::Facts facts;
  facts.local_experts = g.local_experts;
  facts.hidden_granules = g.hidden_granules;
  facts.parity_bytes = [map = WordMap(groups_[0].problem)](WordKind kind) {
    return map.parity_bytes(kind);
  };
  facts.rows = [this](u32 call, u32 src, u32 dst) {
    return groups_[0].routing->rows(call, src, dst);
  };
  return {mutant, std::move(facts)};
}

void World::add_words() {
  WordMemory& words = machine_->words();
  const auto map = std::make_shared<const WordMap>(groups_[0].problem);
  for (u32 group = 0; group < s_.layers; ++group) {
    for (u32 r = 0; r < s_.ranks; ++r) {
      const protocol::Memory& m = groups_[group].memory[r];
      const auto named = [group, r](WordName name) {
        name.group = group;
        name.owner = r;
        return name;
      };
      words.add_region(m.peer(r), m.symmetric().x,
                       [named, map](std::size_t at) { return named(map->symmetric_word(at)); });
      words.add_region(reinterpret_cast<const std::byte*>(m.local_header()), m.local_offsets().pool,
                       [named, map](std::size_t at) { return named(map->local_word(at)); });
      words.add_word(&groups_[group].records[r].flag, {WordKind::record_flag, group, r, 0, 0});
    }
  }
}

void World::reset_words(u32 group) {
  WordMemory& words = machine_->words();
  Group& g = groups_[group];
  for (u32 i = 0; i < words.num_words(); ++i) {
    const WordName& name = words.word(i).name;
    if (name.group != group || name.kind == WordKind::barrier) continue;
    const bool kept = is(Mutant::reset_keeps_abort) && name.kind == WordKind::abort_word;
    if (!kept) words.reset(i, 0);
  }
  for (const protocol::Memory& m : g.memory)
    words.reset(words.find(&m.local_header()->start), protocol::tagged(protocol::kFirstEpoch, 0));
  for (protocol::FaultRecord& record : g.records) record = {};
}

Outcome World::run() {
  for (Launch& l : launches_) {
    Agent& agent = machine_->scheduler().make_agent(num_slots_);
    agent.who = {l.group, l.first_rank, 0, Role::none, 0, true, false};
    agent.slot = agent.async_slot = l.first_slot;
    agent.body = [this, &l, &agent] { host(l, agent); };
    machine_->scheduler().add(agent);
  }
  Outcome outcome;
  outcome.failure = machine_->scheduler().run();
  outcome.steps = machine_->scheduler().steps();
  outcome.state_hash = machine_->state_hash();
  if (!outcome.failure.empty()) outcome.trace = machine_->trace_tail(40);
  return outcome;
}

}  // namespace megamoe::sim
