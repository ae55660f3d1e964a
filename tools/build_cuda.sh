#!/usr/bin/env bash
# build_cuda.sh TARGET...: builds these targets in build/cuda where nvcc is at hand; elsewhere what is
# there already is used as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
nvcc="$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)"
[ -n "$nvcc" ] || exit 0
cmake --preset cuda -DMEGAMOE_BUILD_TESTS=ON "-DCMAKE_CUDA_COMPILER=$nvcc"
cmake --build build/cuda -j "${MEGAMOE_JOBS:-$(nproc)}" --target "$@"
