#pragma once

#include <memory>

#include "c_api/boundary.hpp"
#include "megamoe/megamoe.hpp"

// Handles are numbers that are never given twice, not addresses: one that was destroyed, or never
// given, is found out instead of followed.

namespace megamoe::c_api {

/// Keeps the group; gives its handle.
megamoe_group* add_group(std::unique_ptr<Group> group);
/// Forgets a handle and its layers' and ends the group, once no other thread uses it. Throws Error
/// for one that is not alive.
void remove_group(megamoe_group* group);

/// The group of a handle, alive for as long as it is held. Throws Error naming the handle.
std::shared_ptr<Group> find_group(const megamoe_group* group);
/// The same for the layer; it holds its group too.
std::shared_ptr<Layer> find_layer(const megamoe_layer* layer);

/// The handle of a group's layer. Throws Error for a rank that it does not have.
megamoe_layer* layer_handle(const megamoe_group* group, int local_rank);

}  // namespace megamoe::c_api
