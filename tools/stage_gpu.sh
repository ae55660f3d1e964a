#!/usr/bin/env bash
# The stage `gpu` of tools/check.sh: builds and runs the tests that need one GPU. A binary that is there
# already is used as it is where there is no nvcc. Ends with a line `counts: PASSED FAILED SKIPPED`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec tools/gpu_tests.sh build/cuda/tests/device/test_fused_layer build/cuda/tests/device/test_fused_dispatch \
  build/cuda/tests/device/test_fused_liveness build/cuda/tests/device/test_fused_many \
  build/cuda/tests/device/test_late_stores build/cuda/tests/device/test_late_stores_mutant \
  build/cuda/tests/device/test_inner_faults build/cuda/tests/device/test_fused_combined build/cuda/tests/device/test_fused_values
