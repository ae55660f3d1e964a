#pragma once

#include "host/join/meeting.hpp"
#include "host/join/process_watch.hpp"

namespace megamoe::join {

/// What all providers between processes have in common: one rank per process, who meet and watch
/// each other. Made collectively.
class JoinedMemory : public SymmetricMemory {
 public:
  JoinedMemory(const JoinedMemory&) = delete;
  JoinedMemory& operator=(const JoinedMemory&) = delete;
  /// A process that leaves in order is not a lost one.
  ~JoinedMemory() override { watch_.leave(options_.rank); }

  [[nodiscard]] int ranks() const override { return options_.ranks; }
  [[nodiscard]] std::vector<int> local_ranks() const override { return {options_.rank}; }
  [[nodiscard]] bool one_launch() const override { return false; }
  std::vector<std::string> all_gather(const std::string& text) override {
    return meeting_->all_gather(text);
  }
  [[nodiscard]] std::vector<int> lost_ranks() const override { return watch_.lost(); }

 protected:
  /// `kind` is what the ranks must have in common before anything else: all refuse where it
  /// differs.
  JoinedMemory(const JoinOptions& options, const std::string& kind);

  [[nodiscard]] const JoinOptions& options() const { return options_; }
  [[nodiscard]] int rank() const { return options_.rank; }
  [[nodiscard]] const ProcessWatch& watch() const { return watch_; }
  /// The same for all ranks of this group, unlike that of any other.
  [[nodiscard]] const std::string& group_name() const { return group_name_; }

 private:
  JoinOptions options_;
  std::unique_ptr<Meeting> meeting_;
  ProcessWatch watch_;
  std::string group_name_;
};

}  // namespace megamoe::join
