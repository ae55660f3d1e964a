#pragma once

#include "protocol/fault.hpp"
#include "protocol/geometry.hpp"

/// Route: this rank tells every rank which of its tokens are for whom. The steps are per word; who
/// runs them for many words at once (lanes of a warp, one thread) is each world's affair.
///
/// Counts travel as inclusive ends: word e of (src -> dst) says where the entries for dst's local
/// expert e end in src's list at dst. Neighbouring words give count and start, so nobody needs a
/// prefix table per source.
namespace megamoe::protocol {

/// Says that a chunk's counts are stored; true for the last chunk of the wave, which publishes the
/// counts.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool finish_counting(Call<Env>& c, u32 wave, u32 chunks) {
  // [R:route_counted] -> wait_counted on other chunks. [A:route_counted] the last one reads all
  // chunks' counts.
  return c.env.template fetch_add<Order::acq_rel, Scope::gpu>(
             &c.m.words(c.parity())->route_counted[wave], 1U) == chunks - 1;
}

/// Waits until every chunk of the wave has stored its counts: all hold lower tickets than the
/// caller's.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool wait_counted(Call<Env>& c, u32 wave, u32 chunks) {
  const u32* word = &c.m.words(c.parity())->route_counted[wave];
  return wait_until(
      c, Site{Phase::counted, c.g.rank, wave, chunks},
      // [A:route_counted] pairs with finish_counting.
      [&] { return c.env.template load<Order::acquire, Scope::gpu>(word); },
      [&](u64 seen) { return seen == chunks; });
}

/// A chunk's count for one destination expert. Relaxed: released by finish_counting.
template <class Env>
MEGAMOE_HD void store_chunk_count(Call<Env>& c, u32 wave, u32 chunk, Destination to, u32 count) {
  u32* word = c.m.chunk_count(c.g, wave, chunk) +
              static_cast<std::size_t>(to.rank) * c.g.local_experts + to.local_expert;
  c.env.template store<Order::relaxed, Scope::gpu>(word, count);
}
/// Relaxed: the caller has acquired `counted`.
template <class Env>
MEGAMOE_HD u32 load_chunk_count(Call<Env>& c, u32 wave, u32 chunk, Destination to) {
  const u32* word = c.m.chunk_count(c.g, wave, chunk) +
                    static_cast<std::size_t>(to.rank) * c.g.local_experts + to.local_expert;
  return c.env.template load<Order::relaxed, Scope::gpu>(word);
}

/// Publishes to `to.rank` where the entries for its local expert end in this rank's list there.
/// Zero counts are published too, to every rank, in every call: a rank ends a call only when all
/// counts are in, and that is what allows two parities without acknowledgements.
template <class Env>
MEGAMOE_HD void publish_count(Call<Env>& c, u32 wave, Destination to, u32 inclusive_end) {
  u64* word = c.m.count(c.g, to.rank, c.parity(), wave, c.g.rank) + to.local_expert;
  // [R:count] -> read_count on the destination. What it covers, the staged input, was complete
  // before launch.
  c.env.template store<Order::launch_release, Scope::sys>(word, tagged(c.epoch, inclusive_end));
}

/// Writes one entry of this rank's list at `dst`.
template <class Env>
MEGAMOE_HD void publish_entry(Call<Env>& c, u32 wave, u32 dst, u32 position, u32 index) {
  u64* word = c.m.list(c.g, dst, c.parity(), c.g.rank) + list_base(c.g, wave) + position;
  // [R:list] -> read_entry on the destination. Entries validate themselves, so counts may be ahead
  // of them.
  c.env.template store<Order::launch_release, Scope::sys>(word, tagged(c.epoch, index));
}

/// What this rank will have been sent by `dst` in wave `wave` once this call is done: rows x
/// granules, summed over all calls, modulo 2^32. Written by the chunk that publishes the counts,
/// read by the sum.
template <class Env>
MEGAMOE_HD void store_expected(Call<Env>& c, u32 wave, u32 dst, u32 rows) {
  // Relaxed: written by the previous call.
  const u64 before = c.env.template load<Order::relaxed, Scope::gpu>(
      c.m.expected(c.g, c.parity() ^ 1U, wave) + dst);
  const u32 total = value_of(before) + rows * c.g.hidden_granules;
  // [R:expected] -> wait_arrived. The word validates itself.
  c.env.template store<Order::relaxed, Scope::gpu>(c.m.expected(c.g, c.parity(), wave) + dst,
                                                   tagged(c.epoch, total));
}

/// Waits for the count word of (src, local expert) and returns its inclusive end through `end`.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool read_count(Call<Env>& c, u32 wave, u32 src, u32 local_expert,
                                         u32& end) {
  const u64* word = c.m.count(c.g, c.g.rank, c.parity(), wave, src) + local_expert;
  const Site site{Phase::counts, src, local_expert, c.epoch};
  u64 seen_word = 0;
  bool wrong = false;
  const bool in_time = wait_until(
      c, site,
      // [A:count] pairs with publish_count of rank src: its staged input may be read now.
      [&] { return seen_word = c.env.template load<Order::acquire, Scope::sys>(word); },
      [&](u64 seen) {
        const u32 tag = tag_of(seen);
        // The first wave's words are written in every call: they hold this call's epoch, the one
        // before the last, or nothing. Later waves are used only by calls that have them, so theirs
        // may be older.
        wrong = wave == 0 && tag != c.epoch && tag != c.epoch - 2 && tag != 0;
        return wrong || tag == c.epoch;
      });
  if (wrong) raise_fault(c, site, seen_word);
  end = value_of(seen_word);
  return in_time && !wrong;
}

/// Ends that read_count has already waited for. Relaxed: the caller has acquired the same word.
template <class Env>
MEGAMOE_HD u32 known_end(Call<Env>& c, u32 wave, u32 src, u32 local_expert) {
  return value_of(c.env.template load<Order::relaxed, Scope::sys>(
      c.m.count(c.g, c.g.rank, c.parity(), wave, src) + local_expert));
}
template <class Env>
MEGAMOE_HD u32 known_begin(Call<Env>& c, u32 wave, u32 src, u32 local_expert) {
  return local_expert == 0 ? 0 : known_end(c, wave, src, local_expert - 1);
}

/// Waits for one entry of src's list here and returns its contribution index through `index`.
template <class Env>
[[nodiscard]] MEGAMOE_HD bool read_entry(Call<Env>& c, u32 wave, u32 src, u32 position,
                                         u32& index) {
  const u64* word = c.m.list(c.g, c.g.rank, c.parity(), src) + list_base(c.g, wave) + position;
  u64 seen_word = 0;
  const bool in_time = wait_until(
      c, Site{Phase::entry, src, position, c.epoch},
      // [A:list] pairs with publish_entry of rank src.
      [&] { return seen_word = c.env.template load<Order::acquire, Scope::sys>(word); },
      [&](u64 seen) { return tag_of(seen) == c.epoch; });
  index = value_of(seen_word);
  return in_time;
}

/// Notes the first expert id that is neither -1 nor an expert. It counts as -1 and the call goes
/// on.
template <class Env>
MEGAMOE_HD void record_bad_id(Call<Env>& c, u32 token, u32 slot, std::int64_t value) {
  LocalHeader* header = c.m.local_header();
  // Relaxed: elects a writer; the host reads the values after the call.
  if (!c.env.template compare_exchange<Order::relaxed, Scope::gpu>(&header->bad_id_claim, 0U, 1U))
    return;
  header->bad_id_token = token;
  header->bad_id_slot = slot;
  header->bad_id_value = value;
}

}  // namespace megamoe::protocol
