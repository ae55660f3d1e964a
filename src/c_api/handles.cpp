#include "c_api/handles.hpp"

#include <map>
#include <mutex>
#include <vector>

#include <fmt/format.h>

namespace megamoe::c_api {
namespace {

struct Entry {
  std::shared_ptr<Group> group;
  std::uintptr_t first_layer = 0;  ///< handles of the layers follow each other
};

/// All groups alive, by handle. A layer's handle lies between its group's and the next one's.
class Registry {
 public:
  std::uintptr_t add(std::shared_ptr<Group> group) {
    const std::scoped_lock lock(mutex_);
    const std::uintptr_t handle = next_;
    next_ += kStep * (1 + static_cast<std::uintptr_t>(group->num_local_ranks()));
    entries_.emplace(handle, Entry{std::move(group), handle + kStep});
    return handle;
  }

  std::shared_ptr<Group> remove(std::uintptr_t handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = entries_.find(handle);
    if (found == entries_.end()) return nullptr;
    std::shared_ptr<Group> group = std::move(found->second.group);
    entries_.erase(found);
    return group;
  }

  Entry find_group(std::uintptr_t handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = entries_.find(handle);
    return found == entries_.end() ? Entry{} : found->second;
  }

  std::shared_ptr<Layer> find_layer(std::uintptr_t handle) {
    const std::scoped_lock lock(mutex_);
    auto after = entries_.upper_bound(handle);
    if (after == entries_.begin()) return nullptr;
    const Entry& entry = std::prev(after)->second;
    if (handle < entry.first_layer || (handle - entry.first_layer) % kStep != 0) return nullptr;
    const std::uintptr_t index = (handle - entry.first_layer) / kStep;
    if (index >= static_cast<std::uintptr_t>(entry.group->num_local_ranks())) return nullptr;
    return {entry.group, &entry.group->layer(static_cast<int>(index))};
  }

  /// So that a handle and a small offset make no other handle.
  static constexpr std::uintptr_t kStep = 64;

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, Entry> entries_;
  std::uintptr_t next_ = kStep;
};

Registry& registry() {
  // Never destroyed: handles may be used while a program's static objects end.
  static auto* const kept = new Registry;
  return *kept;
}

template <class Handle>
std::uintptr_t number(const Handle* handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

[[noreturn]] void refuse_handle(const char* name, std::uintptr_t handle) {
  refuse(fmt::format("{} = {:#x} is no live handle: never given, or destroyed", name, handle));
}

/// A handle is a number that looks like a pointer: nothing is ever behind it.
template <class Handle>
Handle* handle_of(std::uintptr_t number) {
  return reinterpret_cast<Handle*>(number);  // NOLINT(performance-no-int-to-ptr)
}

Entry entry_of(const megamoe_group* group) {
  required(group, "group");
  Entry entry = registry().find_group(number(group));
  if (entry.group == nullptr) refuse_handle("group", number(group));
  return entry;
}

}  // namespace

megamoe_group* add_group(std::unique_ptr<Group> group) {
  return handle_of<megamoe_group>(registry().add(std::move(group)));
}

void remove_group(megamoe_group* group) {
  const std::shared_ptr<Group> removed = registry().remove(number(group));
  if (removed == nullptr) refuse_handle("group", number(group));
}

std::shared_ptr<Group> find_group(const megamoe_group* group) { return entry_of(group).group; }

std::shared_ptr<Layer> find_layer(const megamoe_layer* layer) {
  required(layer, "layer");
  std::shared_ptr<Layer> found = registry().find_layer(number(layer));
  if (found == nullptr) refuse_handle("layer", number(layer));
  return found;
}

megamoe_layer* layer_handle(const megamoe_group* group, int local_rank) {
  const Entry entry = entry_of(group);
  (void)entry.group->layer(local_rank);
  const auto index = static_cast<std::uintptr_t>(local_rank);
  return handle_of<megamoe_layer>(entry.first_layer + index * Registry::kStep);
}

}  // namespace megamoe::c_api
