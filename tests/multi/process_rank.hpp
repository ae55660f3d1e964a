#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megamoe/megamoe.hpp"
#include "ref/random_case.hpp"

// One rank's side of a group of two processes, for the tests of two_processes.cpp: on the CPU
// (tests/protocol/process_rank_cpu.cpp) or with a GPU each (process_rank_cuda.cpp).

namespace megamoe {

class ProcessRank {
 public:
  virtual ~ProcessRank() = default;

  Group& group() { return *group_; }
  Layer& layer() { return group_->layer(0); }
  [[nodiscard]] const Problem& problem() const { return problem_; }

  /// Brings and stages this rank's tokens.
  virtual void stage(const ref::RandomInputs& inputs) = 0;
  /// Starts a call of what was staged, y filled with NaN before; on the CPU it runs it.
  virtual void start(const ForwardOptions& options) = 0;
  /// Waits, throws faults; this rank's y.
  virtual std::vector<std::uint16_t> finish() = 0;
  /// Captures staging and call, with the token count of now. On the CPU: notes the options.
  virtual void capture(const ForwardOptions& options) = 0;
  virtual void start_replay() = 0;
  /// Brings other tokens, as many as before, to where captured calls stage them from.
  virtual void bring(const ref::RandomInputs& inputs) = 0;
  /// What is wrong with y of this rank; empty if nothing.
  [[nodiscard]] virtual std::string wrong(const std::vector<std::uint16_t>& y,
                                          const ref::RandomInputs& inputs) const = 0;

  std::vector<std::uint16_t> run(const ForwardOptions& options = {}) {
    start(options);
    return finish();
  }

 protected:
  ProcessRank(const Problem& problem, std::unique_ptr<SymmetricMemory> memory)
      : problem_(problem), group_(std::make_unique<Group>(problem, std::move(memory))) {}

  Problem problem_;
  std::unique_ptr<Group> group_;
};

/// One of the two binaries' ways.
struct ProcessBackend {
  static std::unique_ptr<SymmetricMemory> memory(const JoinOptions& join);
  /// The other provider: regions that this process has mapped. `keep` owns them.
  static std::unique_ptr<SymmetricMemory> pointers(const JoinOptions& join,
                                                   std::unique_ptr<SymmetricMemory>& keep,
                                                   const Problem& problem);
  static std::unique_ptr<ProcessRank> rank(const Problem& problem,
                                           std::unique_ptr<SymmetricMemory> memory);
  /// Bytes in use where the memory lies: of the device, or of this process.
  static std::size_t used_bytes();
  /// Scenarios of this backend alone; "no scenario" if it has none of that name.
  static std::string own_scenario(const std::string& name, const JoinOptions& join);
};

}  // namespace megamoe
