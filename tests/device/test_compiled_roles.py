"""What the compiler made of the roles and of the shipped instances: no register spilled to memory, no
stack, and nothing between the products of a group but uniform arithmetic. The table in docs/perf is that
of the build.

Usage: test_compiled_roles.py CUOBJDUMP LIBRARY ROLE_GEMM [OTHER_BINARY...]
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import kernel_table

ARCH = "sm_90a"
TIMEOUT_S = 500
# Family and rows per block of the shipped instances, as their functions' mangled names have them.
INSTANCES = [f"fused_moeINS_9TileShapeILNS_6FamilyE0ELi{rows}E" for rows in (8, 16, 32, 64)] + [
    "fused_moeINS_9TileShapeILNS_6FamilyE1ELi128E"
]
TABLE = ROOT / "docs/perf/0003-compiled-instances.md"


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


def check_spills(binary: str, usage: str) -> bool:
    seen, bad = spills(usage)
    print(f"{Path(binary).name}: {seen} kernels, {len(bad)} with a stack or spilled registers")
    print("".join(f"  {line}\n" for line in bad), end="")
    return seen > 0 and not bad


def check_main_loops(name: str, sass: str, expected: list[str]) -> bool:
    """expected: parts of the names of all functions with products; empty: of any."""
    print(f"{name}: main loops", flush=True)
    gate = [sys.executable, str(ROOT / "tools/gates/sass_main_loop.py")]
    if expected:
        gate += ["--expect", *expected]
    return subprocess.run(gate, input=sass, text=True, timeout=TIMEOUT_S).returncode == 0


def check_table(usage: str) -> bool:
    rows = kernel_table.rows(usage)
    if len(rows) != len(INSTANCES):
        print(f"{len(rows)} instances of the fused kernel instead of {len(INSTANCES)}")
        return False
    table = kernel_table.table(usage)
    if table in TABLE.read_text():
        return True
    print(f"{TABLE.relative_to(ROOT)} does not show this build's table:\n{table}", end="")
    return False


def main() -> int:
    cuobjdump, library, *roles = sys.argv[1:]
    good = True
    for binary in [library, *roles]:
        usage = dump(cuobjdump, binary, "--dump-resource-usage")
        good = check_spills(binary, usage) and good
        if binary == library:
            good = check_table(usage) and good
    for binary, expected in [(library, INSTANCES), (roles[0], [])]:
        good = (
            check_main_loops(Path(binary).name, dump(cuobjdump, binary, "-sass"), expected) and good
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
