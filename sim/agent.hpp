#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "protocol/fault.hpp"
#include "sim/fibre.hpp"
#include "sim/view.hpp"

namespace megamoe::sim {

using protocol::Role;

/// A device: its CTA slots are shared by the kernels that run on it.
struct Device {
  u32 number = 0;
  u32 free_slots = 0;
};

/// Where the owner of a clock slot runs; the scopes of ordered accesses are decided by it. A host
/// has numbers of its own.
struct Place {
  u32 gpu = 0;
  u32 cta = 0;
};

/// Who an agent is, for policies and for people.
struct Identity {
  u32 group = 0;
  u32 rank = 0;
  u32 cta = 0;  ///< block index
  Role role = Role::none;
  u32 call = 0;
  bool is_host = false;
  bool is_late = false;  ///< starts only when nobody else can do anything
};
std::string to_string(const Identity& who);

enum class AgentState : unsigned char {
  pending,  ///< a CTA that needs a slot of its device
  ready,
  waiting,  ///< polled in vain: ready again when a polled word changes
  done,
};

/// A word that a waiting agent has polled, and the store to it that it has seen.
struct Poll {
  u32 word = 0;
  u32 store = 0;
  protocol::Scope scope = protocol::Scope::sys;
};

/// One thread of control: a host, or a role of a CTA.
struct Agent {
  Identity who;
  u32 slot = 0;        ///< of the clocks
  u32 async_slot = 0;  ///< of the bulk copies that it starts
  View view;
  View async_view;
  std::shared_ptr<const View> at_launch;  ///< what a launch_release publishes
  std::vector<Poll> polls;                ///< since the last pause
  bool polled_stale = false;
  bool waits_for_exits = false;
  AgentState state = AgentState::ready;
  Device* device = nullptr;  ///< set for the agent that holds its CTA's slot
  u64 history = 0;           ///< hash of its steps and of what they returned
  u64 before_last[4] = {};   ///< the history before its last load, before the one before that ...
  u32 idle_loads = 0;        ///< loads in a row that have acquired nothing
  u32 loads_per_poll = 2;    ///< of its wait: those of words, and that of the abort word
  u64 priority = 0;
  std::function<void()> body;
  Fibre fibre;
};

}  // namespace megamoe::sim
