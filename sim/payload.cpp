#include "sim/payload.hpp"

#include <algorithm>

#include "sim/scheduler.hpp"

namespace megamoe::sim {

std::string to_string(const CellName& cell) {
  static constexpr const char* kNames[kCellKinds] = {
      "x",   "x_scales", "topk", "pool",  "pool_scales", "row_meta",
      "act", "combine",  "y",    "stage", "done_slot"};
  std::string text = cell.group == 0 ? "" : "layer" + std::to_string(cell.group) + ".";
  text += std::string(kNames[static_cast<std::size_t>(cell.kind)]) + "@";
  return text + std::to_string(cell.owner) + "[" + std::to_string(cell.i) + "][" +
         std::to_string(cell.j) + "][" + std::to_string(cell.k) + "]";
}

Payload::Payload(std::vector<Place> places, u32 groups, u32 ranks,
                 const std::array<Shape, kCellKinds>& shapes)
    : places_(std::move(places)), ranks_(ranks), shapes_(shapes) {
  for (std::size_t kind = 0; kind < kCellKinds; ++kind) {
    offsets_[kind] = per_rank_;
    per_rank_ += static_cast<std::size_t>(shapes_[kind][0]) * shapes_[kind][1] * shapes_[kind][2];
  }
  cells_.resize(per_rank_ * ranks * groups);
}

Payload::Cell& Payload::cell(const CellName& name) {
  const auto kind = static_cast<std::size_t>(name.kind);
  const Shape& shape = shapes_[kind];
  if (name.owner >= ranks_ || name.i >= shape[0] || name.j >= shape[1] || name.k >= shape[2])
    throw Failure("access outside the buffer: " + to_string(name));
  const std::size_t index = (static_cast<std::size_t>(name.i) * shape[1] + name.j) * shape[2];
  const std::size_t rank = static_cast<std::size_t>(name.group) * ranks_ + name.owner;
  return cells_[rank * per_rank_ + offsets_[kind] + index + name.k];
}

Payload::Touch Payload::touch(Agent& agent, Proxy proxy, u64 step) {
  if (proxy == Proxy::generic)
    return {&agent, step, agent.slot, agent.view.past.tick(agent.slot), proxy};
  // A bulk copy happens some time after its start: a thread of its own, until it is waited for.
  agent.async_view.join(agent.view);
  return {&agent, step, agent.async_slot, agent.async_view.past.tick(agent.async_slot), proxy};
}

void Payload::check(const Agent& agent, const Touch& before, Proxy proxy, const CellName& name,
                    const char* what, u64 step) const {
  if (before.agent == nullptr) return;
  const View& view = proxy == Proxy::generic ? agent.view : agent.async_view;
  const char* why = nullptr;
  if (!view.past.has(before.slot, before.time)) {
    why = "race";
  } else if (before.proxy != proxy) {
    const Clock& crossed = proxy == Proxy::async ? view.to_async : view.to_generic;
    if (!crossed.has(before.slot, before.time)) why = "no proxy fence";
  } else if (proxy == Proxy::async && places_[before.agent->slot].cta != places_[agent.slot].cta &&
             !view.to_async.has(before.slot, before.time) &&
             !view.to_generic.has(before.slot, before.time)) {
    why = "no proxy fence between asynchronous accesses of two CTAs";
  }
  if (why == nullptr) return;
  const auto side = [](Proxy p) { return p == Proxy::async ? " (async)" : ""; };
  throw Failure(std::string(why) + " on " + to_string(name) + ": " + to_string(agent.who) + " " +
                what + side(proxy) + " at step " + std::to_string(step) + " after " +
                to_string(before.agent->who) + side(before.proxy) + " at step " +
                std::to_string(before.step));
}

u64 Payload::read(Agent& agent, const CellName& name, Proxy proxy, u64 step) {
  Cell& c = cell(name);
  const Touch now = touch(agent, proxy, step);
  check(agent, c.write, proxy, name, "reads what was written", step);
  const auto same = std::find_if(c.reads.begin(), c.reads.end(), [&](const Touch& t) {
    return t.slot == now.slot && t.agent == now.agent;
  });
  if (same == c.reads.end()) {
    c.reads.push_back(now);
  } else {
    *same = now;
  }
  return c.value;
}

void Payload::write(Agent& agent, const CellName& name, Proxy proxy, u64 value, u64 step) {
  Cell& c = cell(name);
  const Touch now = touch(agent, proxy, step);
  check(agent, c.write, proxy, name, "overwrites what was written", step);
  for (const Touch& read : c.reads)
    check(agent, read, proxy, name, "overwrites what is read", step);
  c.reads.clear();
  c.write = now;
  c.value = value;
}

}  // namespace megamoe::sim
