#include "sim/work.hpp"

#include "protocol/words.hpp"

namespace megamoe::sim {

using protocol::BlockRef;
using protocol::tag_of;
using protocol::value_of;

namespace {

std::string describe(u64 tag) {
  return "{call " + std::to_string(tag >> 48U) + ", rank " + std::to_string(tag >> 40U & 0xFFU) +
         ", token " + std::to_string(tag >> 20U & 0xFFFFFU) + ", expert " +
         std::to_string(static_cast<std::int64_t>(tag & 0xFFFFFU) - 1) + "}";
}

}  // namespace

void Work::expect(u64 seen, u64 expected, const char* what, const CellName& at) const {
  if (seen == expected) return;
  throw Failure(std::string("wrong data: ") + to_string(agent_.who) + " " + what + " finds " +
                describe(seen) + " in " + to_string(at) + ", expected " + describe(expected));
}

CellName Work::meta(u32 block, u32 row) const {
  const bool few = machine_.mutation().is(Mutant::metadata_in_pool_slots);
  const u32 slots = few ? d_.g->pool_slots : d_.g->meta_slots();
  return cell(CellKind::row_meta, d_.g->rank, block % slots, row);
}

std::int64_t Work::expert_id(u32 token, u32 slot) {
  const CellName at = cell(CellKind::topk, d_.g->rank, token);
  const u64 call = machine_.read(agent_, at, Proxy::generic);
  expect(call, d_.call, "reading ids", at);
  return d_.routing->id(d_.call, d_.g->rank, token, slot);
}

void Work::pull_row(u32 src, u32 index, u32 block, u32 row_in_block) {
  machine_.step(agent_, "pull row of rank", src);
  const u32 token = index / d_.g->contributions;
  const u64 tag = data_tag(d_.call, src, token, 0);
  const CellName x = cell(CellKind::x, src, token);
  const CellName scales = cell(CellKind::x_scales, src, token);
  expect(machine_.read(agent_, x, d_.pulls), tag, "pulling", x);
  expect(machine_.read(agent_, scales, d_.scales), tag, "pulling", scales);
  machine_.complete_async(agent_);
  const u32 slot = block % d_.g->pool_slots;
  machine_.write(agent_, cell(CellKind::pool_scales, d_.g->rank, slot, row_in_block),
                 Proxy::generic, tag);
  machine_.write(agent_, meta(block, row_in_block), Proxy::generic, protocol::row_meta(src, index));
  machine_.write(agent_, cell(CellKind::pool, d_.g->rank, slot, row_in_block), d_.pulls, tag);
  if (!machine_.mutation().is(Mutant::pull_copy_not_awaited)) machine_.complete_async(agent_);
}

std::vector<u64> Work::load_pool(const BlockRef& block) {
  machine_.step(agent_, "L1 reads block", block.index);
  const u32 slot = block.index % d_.g->pool_slots;
  std::vector<u64> rows(block.rows);
  for (u32 row = 0; row < block.rows; ++row) {
    const CellName scales = cell(CellKind::pool_scales, d_.g->rank, slot, row);
    rows[row] = machine_.read(agent_, cell(CellKind::pool, d_.g->rank, slot, row), d_.rings);
    expect(machine_.read(agent_, scales, d_.rings), rows[row], "L1", scales);
    expect(rows[row] >> 48U, d_.call, "L1", cell(CellKind::pool, d_.g->rank, slot, row));
  }
  return rows;
}

void Work::store_act(const BlockRef& block, u32 first_granule, u32 granules,
                     const std::vector<u64>& rows) {
  machine_.step(agent_, "L1 stores block", block.index);
  const u32 slot = block.index % d_.g->act_slots;
  for (u32 row = 0; row < block.rows; ++row) {
    for (u32 k = first_granule; k < first_granule + granules; ++k) {
      machine_.write(agent_, cell(CellKind::act, d_.g->rank, slot, row, k), Proxy::generic,
                     rows[row] + block.expert + 1);
    }
  }
}

std::vector<u64> Work::load_act(const BlockRef& block) {
  machine_.step(agent_, "L2 reads block", block.index);
  const u32 slot = block.index % d_.g->act_slots;
  std::vector<u64> rows(block.rows);
  for (u32 row = 0; row < block.rows; ++row) {
    for (u32 k = 0; k < d_.g->intermediate_granules; ++k) {
      const CellName at = cell(CellKind::act, d_.g->rank, slot, row, k);
      const u64 tag = machine_.read(agent_, at, d_.rings);
      if (k == 0) rows[row] = tag;
      expect(tag, rows[row], "L2", at);
    }
  }
  return rows;
}

void Work::store_combine(const BlockRef& block, u32 first_granule, u32 granules,
                         const std::vector<u64>& rows) {
  machine_.step(agent_, "L2 stores block", block.index);
  for (u32 row = 0; row < block.rows; ++row) {
    const u64 from = row_meta(block, row);
    const u32 src = tag_of(from);
    const u32 token = value_of(from) / d_.g->contributions;
    const u32 slot = value_of(from) % d_.g->contributions;
    expect(rows[row], data_tag(d_.call, src, token, block.expert + 1), "L2",
           meta(block.index, row));
    for (u32 k = first_granule; k < first_granule + granules; ++k)
      machine_.write(agent_, cell(CellKind::combine, src, slot, token, k), Proxy::generic,
                     rows[row]);
  }
}

u64 Work::row_meta(const BlockRef& block, u32 row) {
  return machine_.read(agent_, meta(block.index, row), Proxy::generic);
}

void Work::l1_accumulate(const BlockRef& block, u32 /*first_granule*/, u32 /*granules*/) {
  rows_ = load_pool(block);
  machine_.complete_async(agent_);
}

void Work::l1_store(const BlockRef& block, u32 first_granule, u32 granules) {
  store_act(block, first_granule, granules, rows_);
}

void Work::l2_tile(const BlockRef& block, u32 first_granule, u32 granules) {
  rows_ = load_act(block);
  machine_.complete_async(agent_);
  store_combine(block, first_granule, granules, rows_);
}

u32 Work::expert_of(u32 token, u32 slot) {
  if (slot >= d_.g->top_k) return d_.g->experts_per_rank + slot - d_.g->top_k + 1;
  const std::int64_t id = expert_id(token, slot);
  return protocol::is_expert(*d_.g, id) ? protocol::destination(*d_.g, id).local_expert + 1 : 0;
}

void Work::sum_piece(u32 token, u32 first_granule, u32 granules) {
  for (u32 slot = 0; slot < d_.g->contributions; ++slot) {
    const u32 expert = expert_of(token, slot);
    for (u32 k = first_granule; expert != 0 && k < first_granule + granules; ++k) {
      const CellName at = cell(CellKind::combine, d_.g->rank, slot, token, k);
      expect(machine_.read(agent_, at, d_.sums), data_tag(d_.call, d_.g->rank, token, expert),
             "the sum", at);
    }
  }
  machine_.complete_async(agent_);
  for (u32 k = first_granule; k < first_granule + granules; ++k)
    machine_.write(agent_, cell(CellKind::y, d_.g->rank, token, k), Proxy::generic,
                   data_tag(d_.call, d_.g->rank, token, 0));
}

void Work::sum_tokens(u32 first, u32 count) {
  machine_.step(agent_, "sum from token", first);
  for (u32 token = first; token < first + count; ++token)
    sum_piece(token, 0, d_.g->hidden_granules);
}

}  // namespace megamoe::sim
