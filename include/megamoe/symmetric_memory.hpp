#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megamoe/export.h"
#include "megamoe/problem.hpp"

namespace megamoe {

/// Collective: gives every process the bytes that each rank brings, in the order of ranks. They may
/// hold zeros. It must end, by an exception where ranks do not come.
using AllGather = std::function<std::vector<std::string>(const std::string&)>;

/// The longest deadline of a call or of a step of joining. Longer ones are refused: sums of
/// deadlines in nanoseconds must not wrap.
inline constexpr std::chrono::nanoseconds kMaxDeadline = std::chrono::hours(100);

/// How one process of several, one rank each, joins its group. The processes meet in one of three
/// ways: through `all_gather` if it is given, else over TCP if `address` is given, else in POSIX
/// shared memory under `name`.
struct JoinOptions {
  /// Of the group, where processes meet in shared memory: the same in all of them, unlike that of
  /// any other group.
  std::string name;
  int ranks = 0;
  int rank = 0;  ///< of this process
  /// For each collective step; positive, at most kMaxDeadline.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  std::string address = {};   ///< host name or address at which rank 0 listens while ranks join
  int port = 0;               ///< 1..65535; free again when all have joined
  AllGather all_gather = {};  ///< the caller's own, such as that of an MPI or torch process group
};

/// What launchers such as torchrun tell a process.
struct LauncherRank {
  JoinOptions join;    ///< RANK of WORLD_SIZE, at MASTER_ADDR
  int local_rank = 0;  ///< LOCAL_RANK, else RANK
};

/// The rank that the environment describes: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK.
/// The port is MEGAMOE_PORT, else kPortOffset above MASTER_PORT (below it where that is too much),
/// where the launcher's own store listens. Throws Error naming the variable that is missing or is
/// no number in its range.
MEGAMOE_API LauncherRank rank_from_environment();
inline constexpr int kPortOffset = 619;

/// Bytes of symmetric memory that a Group for this Problem allocates for each rank.
MEGAMOE_API std::size_t symmetric_bytes(const Problem& problem);

/// Memory that every rank of a group can address, and what joining takes: the provider behind a
/// Group. All members are called by one thread at a time.
class MEGAMOE_API SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  /// Ordinary host memory: `ranks` ranks in this process, run by the CPU backend.
  static std::unique_ptr<SymmetricMemory> host(int ranks);
  /// The same, but all ranks of a call share one launch, as virtual ranks on one GPU do.
  static std::unique_ptr<SymmetricMemory> host_virtual(int ranks);
  /// Shared memory between processes of one machine, one rank each, run by the CPU backend.
  /// Collective.
  static std::unique_ptr<SymmetricMemory> shared(const JoinOptions& options);
  /// The most ranks that one launch can serve.
  static constexpr int kMaxVirtualRanks = 8;
  /// `ranks` virtual ranks, up to kMaxVirtualRanks, in the memory of one GPU, which runs all of
  /// them in one launch. device -1: the current one. Throws Error(unsupported) where there is no
  /// GPU that can, or the library was built without CUDA.
  static std::unique_ptr<SymmetricMemory> cuda_virtual(int ranks, int device = -1);
  /// One rank on each of these GPUs, all different, run by this process. (For development with
  /// fewer GPUs: MEGAMOE_RANKS_PER_GPU=n lets n ranks share one here and in cuda_processes; a
  /// launch then has an nth of its SMs, and processes take turns on it.) Enables peer access
  /// between all of them. Throws Error(unsupported) also where a pair cannot reach each other, or
  /// has no native atomics over its link, naming all such pairs.
  static std::unique_ptr<SymmetricMemory> cuda_peers(std::span<const int> devices);
  /// One rank per process, each with a GPU of its own. Memory travels as descriptors: of files
  /// between processes of one machine, as fabric handles where machines share an NVLink domain.
  /// device -1: the current one. Collective: where one rank has no GPU, two have the same, or a
  /// pair cannot reach each other, all ranks throw the same Error, naming ranks and pairs.
  static std::unique_ptr<SymmetricMemory> cuda_processes(const JoinOptions& options,
                                                         int device = -1);
  static constexpr int kHostMemory = -2;
  /// Memory that the caller has mapped already, such as torch's symmetric memory: `bases` holds the
  /// address, in this process, of each rank's region of `bytes` bytes (symmetric_bytes), aligned to
  /// 1024. The caller keeps it until the Group is gone, on all ranks, and uses it for nothing else.
  /// device: of this rank, -1: the current one; kHostMemory: ranks on the CPU. Collective, as
  /// cuda_processes.
  static std::unique_ptr<SymmetricMemory> pointers(const JoinOptions& options,
                                                   std::span<std::byte* const> bases,
                                                   std::size_t bytes, int device = -1);

  [[nodiscard]] virtual int ranks() const = 0;
  /// The ranks that live in this process, ascending.
  [[nodiscard]] virtual std::vector<int> local_ranks() const = 0;
  /// True if a call is one launch for all ranks: only Group::forward can run it then.
  [[nodiscard]] virtual bool one_launch() const = 0;
  /// The GPU of each local rank; empty: host memory.
  [[nodiscard]] virtual std::vector<int> devices() const { return {}; }
  /// What the memory is, in a few words.
  [[nodiscard]] virtual std::string kind() const { return "memory"; }
  /// Collective over processes: `bytes` bytes for each rank, aligned to 1024, at the returned
  /// addresses; zeroed unless they are the caller's. What one rank cannot do, all refuse with the
  /// same Error.
  virtual std::vector<std::byte*> allocate(std::size_t bytes) = 0;
  /// Collective over processes: gives every process the text of each rank. Throws Error naming the
  /// ranks that did not come in time.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
  /// Ranks whose process is known to have ended.
  [[nodiscard]] virtual std::vector<int> lost_ranks() const = 0;
};

}  // namespace megamoe
