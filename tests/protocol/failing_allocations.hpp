#pragma once

namespace megamoe {

/// In threads other than this one, the allocation with operator new after `count` more of them will
/// throw std::bad_alloc; only that one.
void let_allocations_fail_after(long count);

/// Whether one has; from now on none does.
bool an_allocation_failed();

}  // namespace megamoe
