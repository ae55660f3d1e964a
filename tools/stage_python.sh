#!/usr/bin/env bash
# The Python package over the library of build/host, and its tests: see tools/python_package.sh.
# Usage: tools/stage_python.sh [pytest argument...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$PWD/build/venv/bin/python"
if ! "$python" -c 'import nanobind, pytest, scikit_build_core' 2>/dev/null; then
  echo "build/venv lacks nanobind, scikit-build-core or pytest: run tools/setup.sh" >&2
  exit 1
fi
cmake --preset host >/dev/null
cmake --build build/host -j "${MEGAMOE_JOBS:-$(nproc)}" --target megamoe megamoe_ref megamoe_cli
exec tools/python_package.sh "$python" "$PWD/build/host/src/libmegamoe.a" '' tests/python "$@"
