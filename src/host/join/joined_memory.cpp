#include "host/join/joined_memory.hpp"

#include <fmt/format.h>

#include "host/handshake.hpp"
#include "host/join/segment.hpp"

namespace megamoe::join {

JoinedMemory::JoinedMemory(const JoinOptions& options, const std::string& kind)
    : options_(options), meeting_(meet(options)) {
  const auto gather = [this](const std::string& text) { return meeting_->all_gather(text); };
  agree_on(gather, "memory = " + kind + "\n");
  std::vector<std::string> identities, names;
  for (const std::string& text : gather(ProcessWatch::identity() + "\n" + random_name())) {
    const std::size_t line_end = text.find('\n');
    identities.push_back(text.substr(0, line_end));
    names.push_back(line_end == std::string::npos ? "" : text.substr(line_end + 1));
  }
  group_name_ = names.front();
  const SegmentName board(fmt::format("/megamoe.{}.board", group_name_));
  refuse_together(gather, trouble_of([&] {
                    watch_ = ProcessWatch(
                        identities,
                        map_segment(board.text(), ProcessWatch::board_bytes(options.ranks), true));
                  }));
}

}  // namespace megamoe::join
