#!/usr/bin/env bash
# The Python package over a library with kernels, and its tests with torch (see
# tools/python_package.sh): needs GPUs and a Python with torch, numpy, pytest, nanobind and
# scikit-build-core.
#
#   tools/stage_python_gpu.sh [pytest argument...]
#
# MEGAMOE_PYTHON: that Python (default: build/venv's). MEGAMOE_LIBRARY: a libmegamoe.a in its build
# folder, with megamoe_ref built there too (default: the preset cuda's, built here).
# MEGAMOE_RANKS_PER_GPU=2: tests of two GPUs run on the only one, their ranks on half of its SMs each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${MEGAMOE_PYTHON:-$PWD/build/venv/bin/python}"
library="${MEGAMOE_LIBRARY:-}"
if ! "$python" -c 'import nanobind, numpy, pytest, scikit_build_core, torch; assert torch.cuda.is_available()'; then
  echo "$python needs torch with a GPU, numpy, pytest, nanobind and scikit-build-core" >&2
  exit 1
fi
if [ -z "$library" ]; then
  nvcc="$(command -v nvcc || ls /usr/local/cuda/bin/nvcc)"
  cmake --preset cuda "-DCMAKE_CUDA_COMPILER=$nvcc" >/dev/null
  cmake --build build/cuda -j "${MEGAMOE_JOBS:-$(nproc)}" --target megamoe megamoe_ref megamoe_cli
  library="$PWD/build/cuda/src/libmegamoe.a"
fi
# All but the tests of names and of the command line, which are the same with every library.
exec tools/python_package.sh "$python" "$library" _gpu tests/python --ignore=tests/python/test_interface.py "$@"
