#pragma once

#include <string>

#include "sim/model/parameters.hpp"

namespace megamoe::sim::model {

/// The steps of the model. A piece of work that takes time is two steps, and both check that what
/// it reads or overwrites is what it should be.
class Steps {
 public:
  Steps(const Parameters& p, const Routing& routing) : p_(p), routing_(routing) {}

  [[nodiscard]] State initial() const;
  /// Steps that a rank may try: those of its CTAs, then leaving and starting its next call.
  [[nodiscard]] int per_rank() const { return p_.ctas * kPerCta + 2; }
  /// Performs one step; false if it is not possible now. `error` is set if it breaks a rule.
  bool apply(State& s, int rank, int step, std::string& error) const;
  [[nodiscard]] bool finished(const State& s) const;

 private:
  /// Start; courier; math or scheduler; claim ahead; math and publisher of a GPU; exit.
  static constexpr int kPerCta = 7;

  struct Tile {
    bool is_l2;
    int block;
  };

  bool start(State& s, int r, Cta& c, int index) const;
  bool claim_pull(Rank& k, Cta& c, int blocks) const;
  bool courier(State& s, int r, Cta& c, int index, std::string& error) const;
  bool publish(State& s, int r, Cta& c, bool counts) const;
  bool copy(State& s, int r, Cta& c, bool ends, std::string& error) const;
  bool sum(State& s, int r, SumAt& at, std::string& error) const;
  bool step_cta(State& s, int r, int index, int step, std::string& error) const;
  bool math(State& s, int r, Cta& c, std::string& error) const;
  bool math_inputs(State& s, int r, Cta& c, std::string& error) const;
  bool scheduler(State& s, int r, Cta& c, std::string& error) const;
  bool gpu_math(State& s, int r, Cta& c, std::string& error) const;
  bool gpu_publisher(State& s, int r, Cta& c) const;
  [[nodiscard]] bool act_is_free(const Rank& k, int block) const;
  bool check_act(const Rank& k, int r, int block, std::string& error) const;
  bool check_inputs(const Rank& k, int r, const Tile& t, std::string& error) const;
  bool contribute(State& s, int r, int block, std::string& error) const;
  bool l1(State& s, int r, Cta& c, std::string& error) const;
  bool l2(State& s, int r, Cta& c, std::string& error) const;
  bool exit(State& s, int r, Cta& c) const;
  bool leave(State& s, int r) const;
  bool next_call(State& s, int r) const;

  /// 1 all counts are in, 0 not yet, -1 a count word holds a call that it cannot.
  [[nodiscard]] int counts_in(const State& s, int r, int call) const;
  [[nodiscard]] int parity(int call) const { return p_.variant.one_parity ? 0 : call % 2; }
  [[nodiscard]] int total_tickets(int call, int r) const { return 2 * routing_.blocks[call][r]; }
  [[nodiscard]] Tile tile(int call, int r, int ticket) const;

  Parameters p_;
  const Routing& routing_;
};

}  // namespace megamoe::sim::model
