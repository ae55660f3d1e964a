#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What `megamoe doctor` finds on a machine, and what follows from it.

namespace megamoe::cli {

struct GpuFacts {
  int index = 0;  ///< as the CUDA runtime counts
  std::string name = {};
  std::string arch = {};  ///< such as "9.0"
  int sms = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
  bool supported = false;  ///< the kernels of this build run on it
  int sm_budget = 0;       ///< SMs of a call without flags; 0: none
  bool posix_descriptors = false;
  bool fabric = false;
  bool multicast = false;
};

/// One direction between two GPUs.
struct PeerFacts {
  int from = 0, to = 0;  ///< `from` reads and writes memory of `to`
  bool access = false;
  bool native_atomics = false;
  std::optional<double> bandwidth_gbs = {};  ///< of rows pulled by all SMs; none: not measured
  std::optional<double> latency_us = {};     ///< of a flag, one way; none: not measured
  std::string problem = {};                  ///< why it was not measured, if it should have been
};

struct NcclFacts {
  bool found = false;
  std::string version = {};
};

/// Bytes; none: unlimited or unknown.
struct LimitFacts {
  std::optional<std::uint64_t> shm_bytes = {}, shm_free_bytes = {};  ///< of /dev/shm
  std::optional<std::uint64_t> memlock_bytes = {};
  std::optional<std::uint64_t> open_files = {};
};

struct MachineFacts {
  bool cuda_build = false;
  int driver = 0;                   ///< as CUDA states it, 13000 for 13.0; 0: no driver
  std::string driver_release = {};  ///< such as "580.95.05"; empty: unknown
  int runtime = 0;                  ///< that the library was built with; 0: none
  std::string gpu_reason = {};      ///< why no GPU could be asked, in the runtime's words
  std::vector<GpuFacts> gpus = {};
  std::vector<PeerFacts> peers = {};
  NcclFacts nccl = {};
  LimitFacts limits = {};
};

/// What keeps the layer from running on this machine's GPUs, each with what to change; empty: it
/// will run.
std::vector<std::string> advice(const MachineFacts& facts);
/// What a user may want to know, but need not change.
std::vector<std::string> notes(const MachineFacts& facts);

std::string doctor_text(const MachineFacts& facts);
std::string doctor_json(const MachineFacts& facts);

/// Asks the machine. `measure`: bandwidth and latency between GPUs too.
MachineFacts examine_machine(bool measure);

// Parts of it.
/// Driver, NCCL and limits: needs neither the CUDA runtime nor a GPU.
void examine_host(MachineFacts& facts);
/// GPUs and what lies between them; without CUDA only what this build is.
void examine_gpus(MachineFacts& facts, bool measure);

}  // namespace megamoe::cli
