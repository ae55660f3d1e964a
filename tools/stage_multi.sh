#!/usr/bin/env bash
# The stage `multi` of tools/check.sh: builds and runs the tests that need several GPUs that reach each
# other. A binary that is there already is used as it is where there is no nvcc. Ends with a line
# `counts: PASSED FAILED SKIPPED`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec tools/gpu_tests.sh build/cuda/tests/multi/test_two_gpus build/cuda/tests/multi/test_two_gpus_many \
  build/cuda/tests/multi/test_two_gpus_late_stores build/cuda/tests/multi/test_two_gpus_late_stores_mutant \
  build/cuda/tests/multi/test_two_gpus_combined build/cuda/tests/multi/test_two_gpus_values \
  build/cuda/tests/multi/test_two_processes
