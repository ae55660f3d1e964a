#include "host/join/joined_memory.hpp"

#include "host/handshake.hpp"

namespace megamoe::join {

JoinedMemory::JoinedMemory(const JoinOptions& options, const std::string& kind)
    : options_(options), meeting_(meet(options)), watch_({}) {
  const auto gather = [this](const std::string& text) { return meeting_->all_gather(text); };
  agree_on(gather, "memory = " + kind + "\n");
  std::vector<std::string> identities, names;
  for (const std::string& text : gather(ProcessWatch::identity() + "\n" + random_name())) {
    const std::size_t line_end = text.find('\n');
    identities.push_back(text.substr(0, line_end));
    names.push_back(line_end == std::string::npos ? "" : text.substr(line_end + 1));
  }
  watch_ = ProcessWatch(identities);
  group_name_ = names.front();
}

}  // namespace megamoe::join
