#!/usr/bin/env bash
# The stage `mutants` of tools/check.sh: builds the simulator; every mutant of the protocol must turn
# its scenario red, the protocol itself must stay green over 20,000 seeds, over all schedules with few
# preemptions, and in the explicit-state model. With --deep: explorations of larger calls as well, which
# take as long again. Ends with a line `counts: PASSED FAILED SKIPPED`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs="${MEGAMOE_JOBS:-$(nproc)}"
cmake --preset host -DMEGAMOE_BUILD_TESTS=ON
cmake --build build/host -j "$jobs" --target megamoe_sim_main
exec build/host/sim/megamoe_sim prove "$@"
