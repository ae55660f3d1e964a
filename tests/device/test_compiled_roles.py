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
NUM_INSTANCES = 5
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


def check_main_loops(name: str, sass: str, function: str) -> bool:
    print(f"{name}: main loops", flush=True)
    gate = [sys.executable, str(ROOT / "tools/gates/sass_main_loop.py"), "--function", function]
    return subprocess.run(gate, input=sass, text=True, timeout=TIMEOUT_S).returncode == 0


def check_table(usage: str) -> bool:
    rows = kernel_table.rows(usage)
    if len(rows) != NUM_INSTANCES:
        print(f"{len(rows)} instances of the fused kernel instead of {NUM_INSTANCES}")
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
    for binary, function in [(library, "fused_moe"), (roles[0], "")]:
        good = (
            check_main_loops(Path(binary).name, dump(cuobjdump, binary, "-sass"), function) and good
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
