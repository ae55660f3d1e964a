#pragma once

#include <memory>
#include <string>
#include <vector>

#include "protocol/leave.hpp"
#include "sim/cta_shared.hpp"
#include "sim/machine.hpp"
#include "sim/routing.hpp"
#include "sim/scenario.hpp"

namespace megamoe::sim {

struct Outcome {
  std::string failure;  ///< empty: nothing went wrong
  std::string trace;    ///< the last steps of a failed run
  u64 steps = 0;
  u64 state_hash = 0;
};

/// One run of a scenario: ranks with their memories, devices, hosts that stage, launch and check,
/// and CTAs that run the protocol.
class World {
 public:
  World(const Scenario& scenario, u64 seed, Mutant mutant, Policy& policy,
        std::FILE* live_trace = nullptr);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Outcome run();
  Machine& machine() { return *machine_; }

 private:
  static constexpr u64 kDeadlineNs = 1'000'000;

  /// A Layer on every rank.
  struct Group {
    Problem problem;
    std::vector<protocol::Geometry> geometry;  // [rank]
    std::vector<protocol::Memory> memory;
    std::vector<protocol::FaultRecord> records;
    std::unique_ptr<RoutingTable> routing;
    u32 generation = 1;
    u32 epoch_base = 0;  ///< calls before the last reset
  };
  /// What one host launches in every call: the kernel of one rank, or of all virtual ranks.
  struct Launch {
    u32 group = 0;
    u32 first_rank = 0;
    u32 ranks = 1;
    u32 grid = 1;
    Device* device = nullptr;
    u32 first_slot = 0;  ///< clock slots: the host's, then the CTAs'
    std::vector<Agent*> ctas;
    u32 staged_call = 0;
  };

  void vary_sizes(u64 seed);
  Problem make_problem() const;
  void make_groups(u64 seed);
  void make_launches();
  [[nodiscard]] std::vector<Place> places() const;
  [[nodiscard]] Payload make_payload(const std::vector<Place>& places) const;
  [[nodiscard]] Mutation make_mutation(Mutant mutant) const;
  void add_words();

  void host(Launch& l, Agent& self);
  void run_call(Launch& l, Agent& self, u32 call);
  bool was_given_up(const Launch& l);
  void stage(Launch& l, Agent& self, u32 call);
  void launch(Launch& l, Agent& self, u32 call);
  /// Nothing, or who gave up the call of this rank, and where.
  std::string why_given_up(const Group& g, u32 rank);
  void check_results(Launch& l, Agent& self, u32 call);
  void check_fault(Launch& l, u64 started);
  void meet_and_reset(Agent& self);
  void reset_words(u32 group);

  void cta(Launch& l, Agent& self, u32 call);
  protocol::Entry enter(Launch& l, SimEnv& env, u32 call);
  bool run_threads(Agent& self, SimCall& c, const CallData& data);
  bool run_warps(Agent& self, SimCall& c, const CallData& data);
  void name_barriers(const CtaShared& shared, u32 rank, u32 cta);
  Agent& spawn(Agent& parent, Role role, u32 index, std::function<void(Agent&)> body);
  [[nodiscard]] bool is(Mutant m) const { return machine_->mutation().is(m); }
  [[nodiscard]] bool is_troubled(u32 call) const;
  [[nodiscard]] u32 roles_per_cta() const { return warps_ ? 6 : 2; }

  Scenario s_;
  u64 seed_;
  Mutant mutant_;
  bool warps_ = false;
  CtaShape shape_;
  std::vector<Group> groups_;
  std::vector<Device> devices_;
  std::vector<Launch> launches_;
  u32 num_slots_ = 0;
  std::unique_ptr<Machine> machine_;
  std::vector<Agent*> meeting_;
};

}  // namespace megamoe::sim
