#!/usr/bin/env bash
# Runs small calls on virtual ranks under compute-sanitizer: memcheck and synccheck must be clean;
# initcheck is run and its reports kept for an explanation; racecheck may report only accesses to the
# rings whose slots mbarriers hand over, which it does not follow; in a build with a seeded race it must
# report that one. Binaries that are there already are used as they are where there
# is no nvcc. Reports: build/check/sanitizer.TOOL.log. MEGAMOE_SANITIZER: the tool's path.
# MEGAMOE_SANITIZER_LIMIT: seconds for each run (default 300). Ends with `counts: PASSED FAILED SKIPPED`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/build_cuda.sh tests_sanitizer
sanitizer="${MEGAMOE_SANITIZER:-$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)}"
if [ -z "$sanitizer" ]; then
  echo 'compute-sanitizer not found: set MEGAMOE_SANITIZER'
  echo 'counts: 0 1 0'
  exit 1
fi
limit="${MEGAMOE_SANITIZER_LIMIT:-300}"
mkdir -p build/check
passed=0 failed=0

# check TOOL PROGRAM LOG [argument...]: sets `status` and `summary`.
check() {
  local tool="$1" program="$2" log="build/check/sanitizer.$3.log"
  shift 3
  status=0
  timeout --kill-after=10 "$limit" "$sanitizer" --tool "$tool" --print-limit 1000000 \
    "build/cuda/tests/device/$program" "$@" >"$log" 2>&1 || status=$?
  summary="$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')"
  [ -n "$summary" ] || summary="no summary, exit status $status"
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then summary="not over after $limit s"; fi
  right="$(grep -c ': right' "$log" || true)" wrong="$(grep -c ': WRONG' "$log" || true)"
}

report() { # WORD TOOL
  printf '%-7s %-22s %s; %d calls right, %d wrong\n' "$1" "$2" "$summary" "$right" "$wrong"
}

verdict() { # TOOL CONDITION...
  local name="$1"
  shift
  if "$@"; then
    passed=$((passed + 1))
    report PASS "$name"
  else
    failed=$((failed + 1))
    report FAIL "$name"
  fi
}

is_clean() { [[ "$summary" == *' 0 errors'* ]] && [ "$right" -gt 0 ] && [ "$wrong" -eq 0 ]; }
has_run() { [[ "$summary" == *SUMMARY* ]] && [ "$right" -gt 0 ] && [ "$wrong" -eq 0 ]; }

for tool in memcheck synccheck; do
  check "$tool" sanitizer_driver "$tool"
  verdict "$tool" is_clean
done
check initcheck sanitizer_driver initcheck --tokens 3,20 --blocks 16,128
verdict initcheck has_run

# races LOG ARGUMENT...: what racecheck reported, by source lines.
races() {
  local log="$1"
  shift
  [[ "$summary" == *SUMMARY* ]] && python3 tools/race_reports.py "build/check/sanitizer.$log.log" "$@"
}
only_ring_races() { has_run && races racecheck --within ring.cuh copy.cuh; }
check racecheck sanitizer_driver racecheck --tokens 3,20 --blocks 16,128
verdict racecheck only_ring_races
check racecheck sanitizer_driver_racy racecheck-seeded --ranks 1 --tokens 20 --blocks 16
# Whether the race spoils the call's values is chance.
verdict 'seeded race seen' races racecheck-seeded --names decode_epilogue.cuh seeded_race.cu
printf 'counts: %d %d 0\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
