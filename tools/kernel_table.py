#!/usr/bin/env python3
"""Prints what the compiler made of the shipped instances of the fused kernel, as a table in Markdown.

usage: tools/kernel_table.py LIBRARY [--cuobjdump PATH] [--arch sm_90a]

LIBRARY is libmegamoe.a of a CUDA build. Registers are those at launch; the kernel deals them out again
between its warpgroups. Stack and local memory of 0 bytes mean that no register was spilled.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 300
INSTANCE = re.compile(r"fused_moeINS_9TileShapeILNS_6FamilyE(\d)ELi(\d+)ELi(\d+)ELi(\d+)E")
USAGE = re.compile(
    r"Function (\S+):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.MULTILINE
)


def resource_usage(cuobjdump: str, binary: str, arch: str) -> str:
    command = [cuobjdump, "-arch", arch, "--dump-resource-usage", binary]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S
    ).stdout


def rows(usage: str) -> list[str]:
    """One table row per fused instance, by family and rows per block."""
    found = []
    for function, registers, stack, _, local in USAGE.findall(usage):
        match = INSTANCE.search(function)
        if not match:
            continue
        family, block_rows, warpgroups, per_stage = (int(part) for part in match.groups())
        name = f"{('decode', 'prefill')[family]}_{block_rows}"
        threads = 128 * (warpgroups + 1)
        cells = [name, threads, per_stage * 128, registers, stack, local]
        found.append((family, block_rows, "| " + " | ".join(str(cell) for cell in cells) + " |"))
    return [row for _, _, row in sorted(found)]


def table(usage: str) -> str:
    head = [
        "| instance | threads | K per stage | registers at launch | stack bytes | local bytes |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    return "\n".join([*head, *rows(usage)]) + "\n"


def find_cuobjdump() -> str | None:
    hints = sorted(
        Path(__file__).resolve().parents[1].glob("build/venv/lib/python3*/site-packages")
    )
    known = ["/usr/local/cuda/bin/cuobjdump", *(f"{h}/nvidia/cu13/bin/cuobjdump" for h in hints)]
    return shutil.which("cuobjdump") or next((path for path in known if Path(path).exists()), None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library")
    parser.add_argument("--cuobjdump", default=find_cuobjdump())
    parser.add_argument("--arch", default="sm_90a")
    arguments = parser.parse_args()
    if arguments.cuobjdump is None:
        print("cuobjdump not found: give --cuobjdump", file=sys.stderr)
        return 2
    usage = resource_usage(arguments.cuobjdump, arguments.library, arguments.arch)
    print(table(usage), end="")
    return 0 if rows(usage) else 1


if __name__ == "__main__":
    sys.exit(main())
