#!/usr/bin/env bash
# Builds and installs the Python package into build/python/site, as pip does for its users but with
# the library of build/host, and runs its tests. Usage: tools/stage_python.sh [pytest argument...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$PWD/build/venv/bin/python"
jobs="${MEGAMOE_JOBS:-$(nproc)}"
if ! "$python" -c 'import nanobind, pytest, scikit_build_core' 2>/dev/null; then
  echo "build/venv lacks nanobind, scikit-build-core or pytest: run tools/setup.sh" >&2
  exit 1
fi

cmake --preset host >/dev/null
cmake --build build/host -j "$jobs" --target megamoe megamoe_ref megamoe_cli
PATH="$PWD/build/venv/bin:$PATH" CMAKE_BUILD_PARALLEL_LEVEL="$jobs" "$python" -m pip install . \
  --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index --upgrade \
  --target build/python/site \
  --config-settings=build-dir=build/python/cmake \
  --config-settings=cmake.define.MEGAMOE_LIBRARY="$PWD/build/host/src/libmegamoe.a"

status=0 report=build/python/pytest.txt
PYTHONPATH=build/python/site PYTHONDONTWRITEBYTECODE=1 \
  "$python" -m pytest tests/python -q -rs "$@" 2>&1 | tee "$report" || status=$?
count() { grep -oE "[0-9]+ $1" "$report" | tail -n 1 | grep -oE '^[0-9]+' || echo 0; }
echo "counts: $(count passed) $(($(count failed) + $(count errors?))) $(count skipped)"
exit "$status"
