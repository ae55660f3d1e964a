#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace megamoe::join {

/// One process among all that this machine has run: its number may come again, with another start.
struct Process {
  pid_t number = 0;
  std::uint64_t start = 0;  ///< clock ticks since the machine's start; 0: unknown

  static Process own();
  /// False once it has ended, also while its parent has not yet taken notice.
  [[nodiscard]] bool is_running() const;
};

/// Tells which processes of a group have ended, where they share a machine with this one.
class ProcessWatch {
 public:
  /// What this process shows the others: machine and process.
  static std::string identity();

  /// From the identities of all ranks.
  explicit ProcessWatch(const std::vector<std::string>& identities);

  /// Ranks whose process is known to have ended.
  [[nodiscard]] std::vector<int> lost() const;
  /// Ranks that do not run on this machine.
  [[nodiscard]] std::vector<int> elsewhere() const;

 private:
  struct Rank {
    bool same_machine = false;
    bool visible = false;  ///< its number means the same here
    Process process;
  };
  std::vector<Rank> ranks_;
};

}  // namespace megamoe::join
