#!/usr/bin/env bash
# gpu_tests.sh BINARY...: builds these GoogleTest binaries of build/cuda where nvcc is at hand, runs each
# with a time limit, and prints `counts: PASSED FAILED SKIPPED`. Exit status 1 if any test failed or
# none ran. MEGAMOE_GPU_TEST_LIMIT: seconds for each binary (default 600).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
limit="${MEGAMOE_GPU_TEST_LIMIT:-600}"
tools/build_cuda.sh "${@##*/}"
passed=0 failed=0 skipped=0
count() { sed -nE "s/^\[  $1 *\] ([0-9]+) tests?.*/\1/p" "$2" | head -n 1; }
for binary in "$@"; do
  status=0
  log="build/check/${binary##*/}.gpu.log"
  mkdir -p build/check
  timeout --kill-after=10 "$limit" "$binary" 2>&1 | tee "$log" || status=$?
  p="$(count PASSED "$log")" f="$(count FAILED "$log")" s="$(count SKIPPED "$log")"
  passed=$((passed + ${p:-0})) skipped=$((skipped + ${s:-0}))
  # A crash, a time-out or a failed setup is a failure too.
  [ "$status" -eq 0 ] || [ "${f:-0}" -gt 0 ] || f=1
  failed=$((failed + ${f:-0}))
done
printf 'counts: %d %d %d\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
