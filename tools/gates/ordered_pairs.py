"""Every ordered atomic operation says its partner in a tag.

A release carries `[R:name]` and an acquire `[A:name]` in a comment on its line, on a later line of its
statement, or in the comment right above the statement; one that is both carries both. Each name needs
at least one of either side somewhere in src/. Operations outside the folders below may go without.
"""

import re

from tree import Tree, blank, line_of

TAGS_IN = "src/"
NEEDED_IN = ("src/protocol/", "src/roles/", "src/cpu/", "src/kernels/")
# Defines what an Environment offers; uses no order itself.
DEFINITIONS = ("src/protocol/env.hpp",)
_SIDES = {
    "acquire": "A",
    "release": "R",
    "launch_release": "R",
    "acq_rel": "AR",
    "seq_cst": "AR",
}
# A call with an order: env.load<Order::acquire, ...>(...) or word.load(std::memory_order_acquire).
_OPERATION = re.compile(
    r"\w+\s*<\s*(?:\w+::)*Order::(acquire|release|launch_release|acq_rel)\b"
    r"|\([^;{}]*?\bmemory_order(?:_|::)(acquire|release|acq_rel|seq_cst)\b"
)
# A comment, or a lambda whose body starts on the next line.
_ABOVE = re.compile(r"\s*//.*|\s*\[[^\]]*\]\s*(?:\([^)]*\)\s*)?\{\s*")
TAG = re.compile(r"\[([RA]):([a-z][a-z0-9_]*)\]")


def tags_at(lines: list[str], first: int, last: int) -> set[tuple[str, str]]:
    """Tags of a statement on lines first..last (0-based), and of the comment lines right above."""
    while first > 0 and _ABOVE.fullmatch(lines[first - 1]):
        first -= 1
    return {(m[1], m[2]) for line in lines[first : last + 1] for m in TAG.finditer(line)}


def statement(code: str, offset: int) -> tuple[int, int]:
    """First and last line (0-based) of the statement around `offset` of comment-free code."""
    begin = max(code.rfind(mark, 0, offset) for mark in ";{}") + 1
    begin += len(code[begin:]) - len(code[begin:].lstrip())
    ends = [end for end in (code.find(mark, offset) for mark in ";{") if end >= 0]
    return line_of(code, min(begin, offset)) - 1, line_of(code, min(ends, default=offset)) - 1


def check(tree: Tree) -> list[str]:
    findings: list[str] = []
    sides: dict[str, dict[str, str]] = {"R": {}, "A": {}}
    for path, text in tree.cxx(TAGS_IN):
        for match in TAG.finditer(text):
            sides[match[1]].setdefault(match[2], f"{path}:{line_of(text, match.start())}")
        if path in DEFINITIONS or not path.startswith(NEEDED_IN):
            continue
        code, lines = blank(text), text.splitlines()
        for match in _OPERATION.finditer(code):
            order = match[1] or match[2]
            first, last = statement(code, match.start())
            tags = tags_at(lines, first, last)
            for side in _SIDES[order]:
                if not any(tag_side == side for tag_side, _ in tags):
                    findings.append(
                        f"{path}:{line_of(code, match.end())}: {order} without a tag [{side}:name]"
                    )
    for side, other, word in (("R", "A", "acquire"), ("A", "R", "release")):
        for name, where in sides[side].items():
            if name not in sides[other]:
                findings.append(f"{where}: [{side}:{name}] has no {word} [{other}:{name}]")
    return findings
