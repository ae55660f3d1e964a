#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "cli/unfused/exchange.hpp"

namespace megamoe::cli::unfused {

/// What is called of NCCL, by its stable binary interface: the build needs no header of it.
struct NcclLibrary {
  using Comm = void*;

  int (*get_version)(int* version);
  const char* (*error_string)(int result);
  int (*comm_init_all)(Comm* comms, int count, const int* devices);
  int (*comm_destroy)(Comm comm);
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void* from, std::size_t count, int type, int peer, Comm comm,
              cudaStream_t stream);
  int (*receive)(void* to, std::size_t count, int type, int peer, Comm comm, cudaStream_t stream);
};

/// Opens MEGAMOE_NCCL, else libnccl.so.2, once. Throws Error(unsupported) saying what is missing.
const NcclLibrary& nccl();

/// Sends and receives between the GPUs of this process, one communicator each, in one group call.
class NcclExchange : public Exchange {
 public:
  /// One rank on each device, all different.
  explicit NcclExchange(std::span<const int> devices);
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;
  ~NcclExchange() override;

  void all_to_all(std::span<const RankTransfer> transfers) override;
  [[nodiscard]] std::string note() const override;

 private:
  std::vector<NcclLibrary::Comm> comms_;  ///< [ranks]
};

}  // namespace megamoe::cli::unfused
