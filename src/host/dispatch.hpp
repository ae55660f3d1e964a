#pragma once

#include <span>
#include <vector>

#include "config/kernel_config.hpp"
#include "megamoe/megamoe.hpp"
#include "protocol/fault.hpp"

// The dispatch alone: rows brought to their experts' ranks, and nothing computed. For tests and for
// interfaces that show what was dispatched.

namespace megamoe {

/// What a dispatch brought to one rank, on the host: rows of local expert 0 first, rows of an
/// expert by source rank, then by token.
struct DispatchedRows {
  std::vector<protocol::u32> rows_of;  ///< [local experts]
  std::vector<std::byte> x;            ///< activations [rows][hidden]
  std::vector<std::byte> x_scales;     ///< [rows][scale_row_bytes]
  std::vector<protocol::u64> meta;     ///< [rows] protocol::row_meta
  std::vector<float> weights;          ///< [rows] top-k weight, 1 for shared experts
  bool operator==(const DispatchedRows&) const = default;
};

/// Dispatches what the Group's local ranks have staged, `num_tokens[i]` tokens on local rank i, as
/// a call of the Group: on the same words, in turn with its other calls, by the kernel of
/// `options.config`. Every rank of the group must dispatch. Waits for the end. Streams: as for
/// Group::forward; they must be given for devices if staging ran on streams. Throws Error as
/// Group::forward and Layer::check do.
std::vector<DispatchedRows> run_dispatch(Group& group, std::span<const int> num_tokens,
                                         const ForwardOptions& options = {},
                                         std::span<const Stream> streams = {});

}  // namespace megamoe
