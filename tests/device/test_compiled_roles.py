"""What the compiler made of the roles: no register spilled to memory, no stack, and nothing between the
products of a group but uniform arithmetic.

Usage: test_compiled_roles.py CUOBJDUMP ROLE_GEMM [OTHER_BINARY...]
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARCH = "sm_90a"
TIMEOUT_S = 500


def dump(cuobjdump: str, binary: str, flag: str) -> str:
    command = [cuobjdump, "-arch", ARCH, flag, binary]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S
    ).stdout


def spills(usage: str) -> tuple[int, list[str]]:
    """Kernels seen, and those that use a stack or local memory."""
    kernels = re.findall(r"Function (\S+):\s*\n\s*(REG:.*)", usage)
    bad = [
        f"{name}: {resources}"
        for name, resources in kernels
        if not re.search(r"\bSTACK:0\b.*\bLOCAL:0\b", resources)
    ]
    return len(kernels), bad


def main() -> int:
    cuobjdump, *binaries = sys.argv[1:]
    status = 0
    for binary in binaries:
        seen, bad = spills(dump(cuobjdump, binary, "--dump-resource-usage"))
        print(f"{Path(binary).name}: {seen} kernels, {len(bad)} with a stack or spilled registers")
        print("".join(f"  {line}\n" for line in bad), end="")
        if bad or seen == 0:
            status = 1
    main_loops = subprocess.run(
        [sys.executable, str(ROOT / "tools/gates/sass_main_loop.py")],
        input=dump(cuobjdump, binaries[0], "-sass"),
        text=True,
        timeout=TIMEOUT_S,
    )
    return status or main_loops.returncode


if __name__ == "__main__":
    sys.exit(main())
