#include "cli/unfused/chain.hpp"
#include "megamoe/error.hpp"

// For builds with a CUDA toolkit that has no cublasLt.h.

namespace megamoe::cli::unfused {
namespace {

constexpr const char* kWhy = "this program was built without cublasLt.h";

}  // namespace

std::string why_no_chain(std::span<const int> /*devices*/) { return kWhy; }

std::unique_ptr<UnfusedChain> make_chain(const Problem& /*problem*/,
                                         std::vector<ChainRankInput> /*inputs*/) {
  throw Error(ErrorCode::unsupported, kWhy);
}

std::size_t chain_bytes(const Problem& /*problem*/, int /*weight_sets*/) { return 0; }

}  // namespace megamoe::cli::unfused
