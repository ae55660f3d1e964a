#!/usr/bin/env bash
# The stage `mutants` of tools/check.sh: builds the simulator; every mutant of the protocol must turn
# its scenario red for the reason that it states, the protocol itself must stay green over 20,000 seeds,
# over all schedules with few preemptions, and in the explicit-state model. With --deep: explorations and
# models of larger calls as well, which take far longer. Parts run side by side, MEGAMOE_JOBS at once, and
# are printed one after the other. Ends with a line `counts: PASSED FAILED SKIPPED`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs="${MEGAMOE_JOBS:-$(nproc)}"
cmake --preset host -DMEGAMOE_BUILD_TESTS=ON
cmake --build build/host -j "$jobs" --target megamoe_sim_main

sim=build/host/sim/megamoe_sim
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT
deep="${1:-}"
parts=("mutants" "model all $deep")
while read -r kind name about; do
  [ "$kind" = explore ] || continue
  case "$about" in *'(--deep)') [ "$deep" = --deep ] || continue ;; esac
  parts+=("explore $name")
done < <("$sim" list)

# Each part is one process; a part without a line of counts has failed.
for i in "${!parts[@]}"; do printf '%s\t%s\n' "$i" "${parts[i]}"; done |
  xargs -P "$jobs" -d '\n' -I '{}' bash -c '
    IFS=$'"'\t'"' read -r i part <<<"$1"
    read -ra words <<<"$part"
    "$2" "${words[@]}" >"$3/$i" 2>&1 || true' part '{}' "$sim" "$logs"

passed=0 failed=0
for i in "${!parts[@]}"; do
  grep -v '^counts: ' "$logs/$i" || true
  if read -r _ p f _ < <(grep '^counts: ' "$logs/$i"); then
    passed=$((passed + p)) failed=$((failed + f))
  else
    printf '%s: ended without counts\n' "${parts[i]}"
    failed=$((failed + 1))
  fi
done
printf '%d s, %d processes at once\ncounts: %d %d 0\n' "$SECONDS" "$jobs" "$passed" "$failed"
[ "$failed" -eq 0 ]
