#include "sim/word_memory.hpp"

#include <algorithm>

#include "sim/random.hpp"
#include "sim/scheduler.hpp"

namespace megamoe::sim {
namespace {

bool acquires(Order order) { return order == Order::acquire || order == Order::acq_rel; }

}  // namespace

void WordMemory::add_region(const std::byte* base, std::size_t bytes,
                            std::function<WordName(std::size_t)> name) {
  regions_.push_back({base, bytes, std::move(name), std::vector<u32>(bytes / 4, 0)});
}

void WordMemory::add_word(const void* address, const WordName& name) {
  others_[address] = static_cast<u32>(words_.size());
  words_.push_back({name, std::vector<Store>(1), 0});
}

u32 WordMemory::find(const void* address) {
  if (const Region* region = region_of(address)) {
    u32& index = regions_[last_region_].index[region->place(address)];
    if (index == 0) {
      words_.push_back({region->name(region->offset(address)), std::vector<Store>(1), 0});
      index = static_cast<u32>(words_.size());
    }
    return index - 1;
  }
  const auto found = others_.find(address);
  if (found == others_.end()) throw Failure("access to a word outside all regions");
  return found->second;
}

bool WordMemory::reaches(u32 from, Scope scope, u32 to) const {
  if (scope == Scope::sys || from == to) return true;
  const Place& a = places_[from];
  const Place& b = places_[to];
  return scope == Scope::gpu ? a.gpu == b.gpu : a.cta == b.cta;
}

bool WordMemory::visible(const Agent& agent, const Store& store, Scope scope) const {
  return store.seen.empty() ||
         (reaches(store.slot, store.scope, agent.slot) && reaches(agent.slot, scope, store.slot));
}

u32 WordMemory::oldest(const Agent& agent, const Word& word) const {
  for (auto i = static_cast<u32>(word.stores.size()); i-- > 1;) {
    for (const Store::Seen& seen : word.stores[i].seen) {
      if (agent.view.past.has(seen.slot, seen.step)) return i;
    }
  }
  return 0;
}

u32 WordMemory::choices(const Agent& agent, u32 word, Scope scope) const {
  const Word& w = words_[word];
  u32 count = 1;
  for (u32 i = oldest(agent, w) + 1; i < w.stores.size(); ++i)
    count += visible(agent, w.stores[i], scope) ? 1 : 0;
  return count;
}

bool WordMemory::is_newest(const Agent& agent, u32 word, u32 store, Scope scope) const {
  const Word& w = words_[word];
  if (oldest(agent, w) > store) return false;
  for (auto i = static_cast<u32>(w.stores.size()); i-- > store + 1;) {
    if (visible(agent, w.stores[i], scope)) return false;
  }
  return true;
}

void WordMemory::acquire(Agent& agent, const Store& store, Scope scope) {
  for (const Release& release : store.releases) {
    if (reaches(release.slot, release.scope, agent.slot) &&
        reaches(agent.slot, scope, release.slot)) {
      agent.view.join(*release.view);
    }
  }
}

bool WordMemory::is_known(const Agent& agent, const Store& store, const Access& access) const {
  if (!acquires(access.order)) return true;
  return std::all_of(store.releases.begin(), store.releases.end(), [&](const Release& release) {
    return !reaches(release.slot, release.scope, agent.slot) ||
           !reaches(agent.slot, access.scope, release.slot) || agent.view.includes(*release.view);
  });
}

Observed WordMemory::observe(Agent& agent, u32 word, const Access& access, u32 index) {
  Store& store = words_[word].stores[index];
  const u32 step = agent.view.past.tick(agent.slot);
  const bool known = std::any_of(store.seen.begin(), store.seen.end(), [&](const Store::Seen& s) {
    return s.slot == agent.slot;  // at an earlier step, which says more
  });
  if (!known && index > 0) store.seen.push_back({agent.slot, step});
  if (acquires(access.order)) acquire(agent, store, access.scope);
  return {store.value, word, index, index};
}

Observed WordMemory::load(Agent& agent, u32 word, const Access& access, u32 age) {
  const Word& w = words_[word];
  const u32 oldest_index = oldest(agent, w);
  u32 newest = oldest_index;
  u32 chosen = oldest_index;
  for (auto i = static_cast<u32>(w.stores.size()); i-- > oldest_index;) {
    if (i != oldest_index && !visible(agent, w.stores[i], access.scope)) continue;
    if (newest == oldest_index) newest = i;
    chosen = i;
    if (age-- == 0) break;
  }
  const bool nothing_new = chosen == oldest_index && is_known(agent, w.stores[chosen], access);
  Observed seen = observe(agent, word, access, chosen);
  seen.newest = newest;
  seen.says_nothing_new = nothing_new;
  return seen;
}

Store& WordMemory::append(Word& word, Agent& agent, u32 slot, u64 value, Scope scope) {
  Store store;
  store.value = value;
  store.slot = slot;
  store.scope = scope;
  store.seen.push_back({slot, agent.view.past.tick(slot)});
  word.stores.push_back(std::move(store));
  hash_ -= word.history;
  word.history = mix(word.history ^ mix(agent.history + slot) ^ value);
  hash_ += word.history;
  return word.stores.back();
}

void WordMemory::publish(Store& store, const Agent& agent, const Access& access) {
  if (access.order == Order::launch_release) {
    store.releases.push_back({access.scope, agent.slot, agent.at_launch});
  } else if (access.order == Order::release || access.order == Order::acq_rel) {
    store.releases.push_back({access.scope, agent.slot, std::make_shared<const View>(agent.view)});
  }
}

void WordMemory::store(Agent& agent, u32 word, const Access& access, u64 value) {
  publish(append(words_[word], agent, agent.slot, value, access.scope), agent, access);
}

Observed WordMemory::fetch_add(Agent& agent, u32 word, const Access& access, u64 value) {
  Word& w = words_[word];
  const Observed seen = observe(agent, word, access, static_cast<u32>(w.stores.size()) - 1);
  u64 sum = seen.value + value;
  if (access.bytes == 4) sum = static_cast<u32>(sum);
  // Read-modify-writes continue the release sequence of what they read.
  std::vector<Release> sequence = w.stores.back().releases;
  Store& added = append(w, agent, agent.slot, sum, access.scope);
  added.releases = std::move(sequence);
  publish(added, agent, access);
  return seen;
}

Observed WordMemory::compare_exchange(Agent& agent, u32 word, const Access& access, u64 expected,
                                      u64 desired) {
  Word& w = words_[word];
  const Observed seen = observe(agent, word, access, static_cast<u32>(w.stores.size()) - 1);
  if (seen.value != expected) return seen;
  std::vector<Release> sequence = w.stores.back().releases;
  Store& added = append(w, agent, agent.slot, desired, access.scope);
  added.releases = std::move(sequence);
  publish(added, agent, access);
  return seen;
}

void WordMemory::async_arrive(Agent& agent, u32 word, u64 value) {
  Word& w = words_[word];
  std::vector<Release> sequence = w.stores.back().releases;
  const u64 sum = w.stores.back().value + value;
  agent.async_view.join(agent.view);
  Store& added = append(w, agent, agent.slot, sum, Scope::cta);
  agent.async_view.join(agent.view);
  added.releases = std::move(sequence);
  added.releases.push_back(
      {Scope::cta, agent.slot, std::make_shared<const View>(agent.async_view)});
}

void WordMemory::reset(u32 word, u64 value) {
  Word& w = words_[word];
  w.stores.assign(1, Store{});
  w.stores.back().value = value;
}

}  // namespace megamoe::sim
