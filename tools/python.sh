#!/usr/bin/env bash
# Runs a Python that has numpy: build/venv's (tools/setup.sh makes it), else the first python3 that can
# import it. Usage: tools/python.sh script.py [argument...]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
for python in "$root/build/venv/bin/python" python3 /usr/bin/python3; do
  if "$python" -c 'import numpy' 2>/dev/null; then exec "$python" "$@"; fi
done
echo "tools/python.sh: no python3 with numpy found; run tools/setup.sh" >&2
exit 2
