"""The example that needs one GPU. That of several processes is run by torch_cpu/test_torch.py."""

import re
import subprocess
import sys
from pathlib import Path


def test_replace_unfused():
    example = Path(__file__).parents[3] / "examples/python/replace_unfused.py"
    command = [sys.executable, str(example)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert found.returncode == 0, found.stderr[-2000:]
    difference = re.search(r"difference: (\S+)", found.stdout)
    assert difference and 0 < float(difference[1]) < 0.1, found.stdout
