#pragma once

namespace megamoe {

/// In programs with the instances of late_stores.cuh: from now on `rank`'s consumer threads on this
/// device wait `ns` before they store an L2 tile's results, and nothing else waits. 0: no longer.
/// No call may be running.
void set_late_stores(int device, unsigned rank, unsigned long long ns);

}  // namespace megamoe
