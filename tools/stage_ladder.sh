#!/usr/bin/env bash
# The stage `ladder` of tools/check.sh: one program per stage of the kernel, on 1, 2, 4 and 8 virtual
# ranks and, where there are two GPUs, on two. Binaries that are there already are used as they are where
# there is no nvcc. MEGAMOE_LADDER_TOKENS: the token counts (default 0,8,48,192). Ends with a line
# `counts: PASSED FAILED SKIPPED` of cases.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/build_cuda.sh tests_ladder
tokens="${MEGAMOE_LADDER_TOKENS:-0,8,48,192}"
gpus="$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)"
mkdir -p build/check
log=build/check/ladder.cases.log
: >"$log"
failed=0
climb() {
  timeout --kill-after=10 70 "$@" --tokens-list "$tokens" 2>&1 | tee -a "$log" || failed=$((failed + 1))
}
for rung in rung1_interface rung2_dispatch rung3_l1_tile rung4_l1 rung5_l2 rung6_sum rung7_replay; do
  program="build/cuda/tests/ladder/$rung"
  if [ "$rung" = rung3_l1_tile ]; then
    climb "$program" --ranks 1 --virtual
    continue
  fi
  for ranks in 1 2 4 8; do climb "$program" --ranks "$ranks" --virtual; done
  if [ "${gpus:-0}" -ge 2 ]; then climb "$program" --ranks 2; fi
done
passed="$(grep -c ' tokens  PASS ' "$log" || true)"
bad="$(grep -c ' tokens  FAIL ' "$log" || true)"
# A program that ended otherwise is a failure too.
[ "$failed" -le "$bad" ] || bad="$failed"
printf 'counts: %d %d 0\n' "$passed" "$bad"
[ "$bad" -eq 0 ] && [ "$passed" -gt 0 ]
