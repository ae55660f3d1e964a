#!/usr/bin/env python3
"""Checks that nothing but uniform arithmetic sits between the matrix instructions of a group.

usage: cuobjdump -sass FILE | tools/gates/sass_main_loop.py [--function PART] [--fmul N]
                                                             [--expect PART...]

Reads a disassembly. A group is a run of QGMMA or HGMMA that no WARPGROUP.ARRIVE, DEPBAR, branch or
barrier interrupts; between two of a group R2UR, LDS, LDG, FFMA, SHFL and the local-memory
instructions are forbidden: they delay the tensor core. FMUL is allowed, up to N per group of the
function on average (default 4): a stage's scales of tokens and weights are multiplied with each other,
four products for the four kinds of a thread's accumulators, and the compiler puts them behind a
group's first instruction, which runs meanwhile. Prints one line per function with its groups and what
was found. Exit status 1 if anything forbidden was found; if no function had a group; or, with --expect,
unless each PART is in the name of exactly one function with groups and each such function has a PART.
"""

import argparse
import collections
import re
import sys

INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+|@!?U?PT\s+)?([A-Z0-9_]+(?:\.[A-Za-z0-9_]+)*)"
)
MATRIX = ("QGMMA", "HGMMA", "IGMMA")
END = ("WARPGROUP", "WARPSYNC", "BRA", "BAR", "EXIT", "CALL", "RET", "SYNCS", "WARPGROUP.DEPBAR")
FORBIDDEN = ("R2UR", "LDS", "LDG", "FFMA", "SHFL", "LDL", "STL")
WATCHED = (*FORBIDDEN, "FMUL")


def functions(lines):
    """Yields (name, opcodes) for each function of the dump."""
    name, opcodes = None, []
    for line in lines:
        found = re.search(r"Function : (\S+)", line)
        if found:
            if name:
                yield name, opcodes
            name, opcodes = found.group(1), []
            continue
        found = INSTRUCTION.search(line)
        if found:
            opcodes.append(found.group(1))
    if name:
        yield name, opcodes


def inspect(opcodes):
    """Group sizes and the forbidden instructions found inside groups."""
    groups, found = [], collections.Counter()
    size, between = 0, []
    for opcode in opcodes:
        base = opcode.split(".")[0]
        if base in MATRIX:
            if size:
                found.update(b for b in between if b in WATCHED)
            size, between = size + 1, []
        elif base in END:
            if size:
                groups.append(size)
            size, between = 0, []
        elif size:
            between.append(base)
    if size:
        groups.append(size)
    return groups, found


def unexpected(names, parts):
    """What is wrong with the names of the functions that have groups, a line each."""
    lines = []
    for part in parts:
        count = sum(part in name for name in names)
        if count != 1:
            lines.append(f"{count} functions with matrix instructions named {part} instead of 1")
    others = [name for name in names if not any(part in name for part in parts)]
    return lines + [f"nobody expects matrix instructions in {name}" for name in others]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fmul", type=int, default=4, help="FMULs allowed per group")
    parser.add_argument(
        "--function", default="", help="only functions whose mangled name contains this"
    )
    parser.add_argument(
        "--expect", nargs="+", metavar="PART", help="parts of the names of all that must be found"
    )
    arguments = parser.parse_args()
    checked, bad = [], 0
    for name, opcodes in functions(sys.stdin):
        if arguments.function not in name:
            continue
        groups, found = inspect(opcodes)
        if not groups:
            continue
        checked.append(name)
        bad += any(found[op] for op in FORBIDDEN) or found["FMUL"] > arguments.fmul * len(groups)
        sizes = ", ".join(
            f"{count} of {size}" for size, count in sorted(collections.Counter(groups).items())
        )
        verdict = ", ".join(f"{count} {op}" for op, count in sorted(found.items())) or "clean"
        print(f"{verdict:20s} {sum(groups)} products in groups: {sizes}; {name}")
    if not checked:
        print("no function with matrix instructions")
    for line in unexpected(checked, arguments.expect) if arguments.expect else []:
        print(line)
        bad += 1
    return 1 if bad or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
