"""Loops that wait for another agent end: by their condition, an abort, or a deadline."""

import re

from tree import Tree, blank, line_of

FOLDERS = ("src/protocol/", "src/roles/", "src/cpu/", "src/kernels/", "src/ptx/")
_LOOP = re.compile(r"\bwhile\s*\(|\bfor\s*\(\s*;\s*;\s*\)")
# What reads a word that another agent writes.
_POLL = re.compile(r"\b(?:load|ld_\w+|poll\w*|test_wait\w*|try_wait\w*|peek\w*)\s*[<(]")
# What ends a wait whose condition never comes.
_BOUND = re.compile(
    r"deadline|timed_out|expired|abort|fault|stop|give_up|keep_waiting|overdue|wait_until"
)
_LEAVES = re.compile(r"\b(?:break|return|throw|co_return)\b")


def closing(code: str, start: int, opening: str, closing_mark: str) -> int:
    depth = 0
    for offset in range(start, len(code)):
        if code[offset] == opening:
            depth += 1
        elif code[offset] == closing_mark:
            depth -= 1
            if depth == 0:
                return offset
    return len(code)


def loop_parts(code: str, match: re.Match[str]) -> tuple[str, str]:
    """Condition and body of the loop at `match`; do-while loops have their body before."""
    opening = code.index("(", match.start())
    end = closing(code, opening, "(", ")")
    condition = code[opening + 1 : end]
    rest = code[end + 1 :]
    if rest.lstrip().startswith("{"):
        first = end + 1 + rest.index("{")
        return condition, code[first : closing(code, first, "{", "}") + 1]
    body = rest[: rest.find(";") + 1]
    before = code[: match.start()].rstrip()
    if body.strip() == ";" and before.endswith("}"):
        depth = 0
        for offset in range(len(before) - 1, -1, -1):
            depth += {"}": 1, "{": -1}.get(before[offset], 0)
            if depth == 0:
                if before[:offset].rstrip().endswith("do"):
                    body = before[offset:]
                break
    return condition, body


def check(tree: Tree) -> list[str]:
    findings = []
    for path, text in tree.cxx(*FOLDERS):
        code = blank(text)
        for match in _LOOP.finditer(code):
            condition, body = loop_parts(code, match)
            whole = condition + body
            where = f"{path}:{line_of(code, match.start())}"
            endless = condition.replace(" ", "") in ("true", "1", ";;")
            if endless and not _LEAVES.search(body):
                findings.append(f"{where}: a loop without an end")
            elif _POLL.search(whole) and not _BOUND.search(whole):
                findings.append(f"{where}: a wait without deadline or abort")
    return findings
