#!/usr/bin/env bash
# Builds the Python package over a library with kernels and runs tests/python/gpu: needs GPUs and a
# Python with torch, numpy, pytest, nanobind and scikit-build-core.
#
#   tools/stage_python_gpu.sh [pytest argument...]
#
# MEGAMOE_PYTHON: that Python (default: build/venv's). MEGAMOE_LIBRARY: a libmegamoe.a in its build
# folder, with megamoe_ref built there too (default: the preset cuda's, built here).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${MEGAMOE_PYTHON:-$PWD/build/venv/bin/python}"
jobs="${MEGAMOE_JOBS:-$(nproc)}"
library="${MEGAMOE_LIBRARY:-}"
if ! "$python" -c 'import nanobind, numpy, pytest, scikit_build_core, torch; assert torch.cuda.is_available()'; then
  echo "$python needs torch with a GPU, numpy, pytest, nanobind and scikit-build-core" >&2
  exit 1
fi
if [ -z "$library" ]; then
  nvcc="$(command -v nvcc || ls /usr/local/cuda/bin/nvcc)"
  cmake --preset cuda "-DCMAKE_CUDA_COMPILER=$nvcc" >/dev/null
  cmake --build build/cuda -j "$jobs" --target megamoe megamoe_ref megamoe_cli
  library="$PWD/build/cuda/src/libmegamoe.a"
fi
PATH="$(dirname "$python"):$PATH" CMAKE_BUILD_PARALLEL_LEVEL="$jobs" "$python" -m pip install . \
  --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index --upgrade \
  --target build/python/site_gpu \
  --config-settings=build-dir=build/python/cmake_gpu \
  --config-settings=cmake.define.MEGAMOE_LIBRARY="$library"

status=0 report=build/python/pytest_gpu.txt
PYTHONPATH=build/python/site_gpu PYTHONDONTWRITEBYTECODE=1 \
  "$python" -m pytest tests/python/gpu tests/python/torch_cpu -q -rs "$@" 2>&1 | tee "$report" || status=$?
count() { grep -oE "[0-9]+ $1" "$report" | tail -n 1 | grep -oE '^[0-9]+' || echo 0; }
echo "counts: $(count passed) $(($(count failed) + $(count errors?))) $(count skipped)"
exit "$status"
