#!/usr/bin/env bash
# python_package.sh PYTHON LIBRARY SUFFIX [pytest argument...]: installs the Python package into
# build/python/siteSUFFIX, as pip does for its users but over LIBRARY, a libmegamoe.a in its build folder
# with megamoe_ref built there too, and runs pytest on it. Prints `counts: PASSED FAILED SKIPPED`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$1" library="$2" suffix="$3"
shift 3
PATH="$(dirname "$python"):$PATH" CMAKE_BUILD_PARALLEL_LEVEL="${MEGAMOE_JOBS:-$(nproc)}" \
  "$python" -m pip install . \
  --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index --upgrade \
  --target "build/python/site$suffix" \
  --config-settings=build-dir="build/python/cmake$suffix" \
  --config-settings=cmake.define.MEGAMOE_LIBRARY="$library"

status=0 report="build/python/pytest$suffix.txt"
PYTHONPATH="build/python/site$suffix" PYTHONDONTWRITEBYTECODE=1 \
  "$python" -m pytest -q -rs "$@" 2>&1 | tee "$report" || status=$?
count() { grep -oE "[0-9]+ $1" "$report" | tail -n 1 | grep -oE '^[0-9]+' || echo 0; }
# What the process printed at its end may lack a line's end.
printf '\ncounts: %d %d %d\n' "$(count passed)" $(($(count failed) + $(count errors?))) "$(count skipped)"
exit "$status"
