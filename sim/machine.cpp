#include "sim/machine.hpp"

#include <algorithm>

#include "sim/random.hpp"

namespace megamoe::sim {
namespace {

/// How often time may pass, by half a deadline, without a store before the run counts as hung: the
/// longest patience is that of a publisher, 17.5 deadlines.
constexpr u32 kIdleLimit = 40;

const char* op_name(const Op& op) {
  static constexpr const char* kNames[4][5] = {
      {"load relaxed", "load acquire", "load release", "load acq_rel", "load"},
      {"store relaxed", "store acquire", "store release", "store acq_rel", "store launch_release"},
      {"add relaxed", "add acquire", "add release", "add acq_rel", "add"},
      {"cas relaxed", "cas acquire", "cas release", "cas acq_rel", "cas"}};
  return kNames[static_cast<std::size_t>(op.kind)][static_cast<std::size_t>(op.access.order)];
}

}  // namespace

Machine::Machine(Policy& policy, u64 max_steps, std::vector<Place> places, Payload payload,
                 Mutation mutation, std::FILE* live_trace)
    : scheduler_(policy, max_steps),
      policy_(policy),
      words_(places),
      payload_(std::move(payload)),
      mutation_(std::move(mutation)),
      trace_(live_trace),
      calls_(places.size()),
      last_word_(places.size(), WordKind::unknown) {
  scheduler_.on_idle = [this] { return pass_time(); };
  scheduler_.describe_deadlock = [this] { return describe_deadlock(); };
}

std::string Machine::word_text(u32 word) const { return to_string(words_.word(word).name); }

void Machine::note(Agent& agent, const char* what, u32 word, u64 value, u32 age) {
  trace_.add({scheduler_.steps(), &agent, what, word, value, age},
             [this](u32 w) { return word_text(w); });
}

std::string Machine::trace_tail(std::size_t lines) const {
  return trace_.tail(lines, [this](u32 w) { return word_text(w); });
}

void Machine::after_store(u32 word) {
  ++stores_;
  for (const auto& agent : scheduler_.agents()) {
    if (agent->state != AgentState::waiting) continue;
    const bool polls_it = std::any_of(agent->polls.begin(), agent->polls.end(),
                                      [&](const Poll& poll) { return poll.word == word; });
    if (polls_it) {
      agent->polls.clear();
      scheduler_.wake(*agent);
    }
  }
}

bool Machine::changes_nothing(u32 word, const Op& op) const {
  const std::vector<Store>& stores = words_.word(word).stores;
  return op.kind == OpKind::store && op.access.order == Order::relaxed && stores.size() == 1 &&
         stores.back().value == op.value;
}

u64 Machine::perform(Agent& agent, Op& op, u32 word) {
  Observed seen;
  switch (op.kind) {
    case OpKind::load: {
      const u32 choices = words_.choices(agent, word, op.access.scope);
      const u32 age = choices > 1 ? policy_.age(agent, choices) : 0;
      seen = words_.load(agent, word, op.access, age);
      agent.polls.push_back({word, seen.store, op.access.scope});
      if (age > 0) agent.polled_stale = true;
      note(agent, op_name(op), word, seen.value, age);
      break;
    }
    case OpKind::store:
      words_.store(agent, word, op.access, op.value);
      note(agent, op_name(op), word, op.value, 0);
      break;
    case OpKind::fetch_add:
      seen = words_.fetch_add(agent, word, op.access, op.value);
      note(agent, op_name(op), word, seen.value + op.value, 0);
      break;
    case OpKind::compare_exchange:
      seen = words_.compare_exchange(agent, word, op.access, op.value, op.desired);
      note(agent, op_name(op), word, seen.value, 0);
      break;
  }
  if (op.kind == OpKind::load) {
    std::copy_backward(agent.before_last, std::end(agent.before_last) - 1,
                       std::end(agent.before_last));
    agent.before_last[0] = agent.history;
    agent.idle_loads = seen.says_nothing_new ? agent.idle_loads + 1 : 0;
  } else {
    agent.idle_loads = 0;
    agent.polls.clear();
    after_store(word);
  }
  agent.history = mix(agent.history ^ mix(seen.value * 8 + static_cast<u64>(op.kind)) ^ seen.store);
  return seen.value;
}

u64 Machine::run_op(Agent& agent, Op& op) {
  u32 word = words_.find(op.access.address);
  const WordName name = words_.word(word).name;
  if (!mutation_.is(Mutant::none)) {
    if (mutation_.flushes(name, op)) flush(agent);
    mutation_.change(agent, name, calls_[agent.slot], op);
    if (op.defer) {
      op.defer = false;
      deferred_[&agent].push_back(op);
      return 0;
    }
    if (op.skip) return op.value;
    word = words_.find(op.access.address);
  }
  if (changes_nothing(word, op)) return 0;
  if (shared_ == nullptr || shared_->note(name, agent.slot)) scheduler_.point();
  last_word_[agent.slot] = name.kind;
  const u64 value = perform(agent, op, word);
  if (mutation_.is(Mutant::none)) return value;
  return mutation_.forge(agent, name, calls_[agent.slot], op, value);
}

u64 Machine::load(Agent& agent, const Access& access) {
  Op op{OpKind::load, access};
  return run_op(agent, op);
}

void Machine::store(Agent& agent, const Access& access, u64 value) {
  // Clearing what was never used: nobody can tell.
  const bool clears = value == 0 && access.order == Order::relaxed;
  if (clears && mutation_.is(Mutant::none) && words_.is_untouched(access.address)) return;
  Op op{OpKind::store, access, value};
  run_op(agent, op);
}

u64 Machine::fetch_add(Agent& agent, const Access& access, u64 value) {
  Op op{OpKind::fetch_add, access, value};
  return run_op(agent, op);
}

bool Machine::compare_exchange(Agent& agent, const Access& access, u64 expected, u64 desired) {
  Op op{OpKind::compare_exchange, access, expected, desired};
  return run_op(agent, op) == expected;
}

void Machine::flush(Agent& agent) {
  std::vector<Op> ops = std::move(deferred_[&agent]);
  deferred_[&agent].clear();
  for (Op& op : ops) {
    scheduler_.point();
    perform(agent, op, words_.find(op.access.address));
  }
}

void Machine::pause(Agent& agent, u32 loads) {
  // Whoever read an old value, or missed a store since, polls again.
  bool up_to_date = !agent.polled_stale;
  for (const Poll& poll : agent.polls) {
    if (!words_.is_newest(agent, poll.word, poll.store, poll.scope)) up_to_date = false;
  }
  agent.polled_stale = false;
  // A poll in vain leaves the agent where it was.
  if (agent.idle_loads >= loads) agent.history = agent.before_last[loads - 1];
  agent.idle_loads = 0;
  if (up_to_date && !agent.polls.empty()) {
    scheduler_.wait();
  } else {
    scheduler_.point();
  }
  agent.polls.clear();
}

void Machine::fence(Agent& agent, bool to_async) {
  if (mutation_.drops_fence(agent, to_async, last_word_[agent.slot])) return;
  (to_async ? agent.view.to_async : agent.view.to_generic) = agent.view.past;
}

void Machine::step(Agent& agent, const char* what, u64 value) {
  if (shared_ == nullptr) scheduler_.point();
  agent.history = mix(agent.history + value);
  note(agent, what, Trace::kNoWord, value, 0);
}

u64 Machine::read(Agent& agent, const CellName& cell, Proxy proxy) {
  return payload_.read(agent, cell, proxy, scheduler_.steps());
}

void Machine::write(Agent& agent, const CellName& cell, Proxy proxy, u64 value) {
  payload_.write(agent, cell, proxy, value, scheduler_.steps());
}

void Machine::async_arrive(Agent& agent, const void* barrier) {
  const u32 word = words_.find(barrier);
  scheduler_.point();
  words_.async_arrive(agent, word, 1);
  note(agent, "copies arrive", word, words_.latest(word), 0);
  agent.history = mix(agent.history + word);
  after_store(word);
}

void Machine::leave(Agent& agent) {
  if (!mutation_.is(Mutant::none)) flush(agent);
  complete_async(agent);
}

bool Machine::pass_time() {
  if (deadline_ns_ == 0) return false;
  idles_ = stores_ == stores_at_idle_ ? idles_ + 1 : 0;
  stores_at_idle_ = stores_;
  if (idles_ > kIdleLimit) return false;
  time_ += deadline_ns_ / 2 + 1;
  bool woke = false;
  for (const auto& agent : scheduler_.agents()) {
    if (agent->state != AgentState::waiting || agent->waits_for_exits) continue;
    agent->polls.clear();
    scheduler_.wake(*agent);
    woke = true;
  }
  return woke;
}

std::string Machine::describe_deadlock() const {
  std::string text = "nobody can go on:";
  for (const auto& agent : scheduler_.agents()) {
    if (agent->state == AgentState::done) continue;
    text += "\n  " + to_string(agent->who);
    if (agent->state == AgentState::pending) text += " has no slot on its device";
    if (agent->waits_for_exits) {
      text += " waits for the end of its kernel or role";
      continue;
    }
    for (const Poll& poll : agent->polls) {
      const Word& word = words_.word(poll.word);
      text +=
          " polls " + to_string(word.name) + " = " + std::to_string(word.stores[poll.store].value);
    }
  }
  return text;
}

u64 Machine::state_hash() const {
  u64 hash = words_.state_hash();
  for (const auto& agent : scheduler_.agents()) {
    const auto state = static_cast<u64>(agent->state);
    hash += mix(agent->history ^ mix(u64{agent->slot} << 8U | state));
  }
  return hash;
}

}  // namespace megamoe::sim
