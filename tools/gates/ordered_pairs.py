"""Every ordered atomic operation says its partner in a tag, and has the order and scope of its word.

A release carries `[R:name]` and an acquire `[A:name]` in a comment on its line, on a later line of its
statement, or in the comment right above the statement; one that is both carries both. Each name needs
at least one of either side somewhere in src/. Operations outside the folders below may go without.

In src/protocol/ a name is that of a word of PROTOCOL.md's table "Words", whose column "order, scope"
has clauses `OPERATION ORDER SCOPE[, or : and a remark]`, separated by semicolons. A tagged operation
must be one of its word's clauses, and a clause with a release or an acquire must be in the source.
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
# An operation of an Environment, relaxed ones too: its method, order and scope.
_METHODS = {
    "load": "load",
    "store": "store",
    "fetch_add": "add",
    "compare_exchange": "compare-exchange",
}
_OF_ENVIRONMENT = re.compile(
    r"\b(load|store|fetch_add|compare_exchange)\s*<\s*(?:\w+::)*Order::(\w+)\s*,"
    r"\s*(?:\w+::)*Scope::(\w+)\s*>"
)
_CLAUSE = re.compile(
    r"((?:store and load)|load|store|add|compare-exchange) "
    r"(relaxed|acquire|release|launch_release|acq_rel) (cta|gpu|sys)\b.*"
)
WORDS_IN = "PROTOCOL.md"
PROTOCOL = "src/protocol/"
# Ordered, but in the host's memory: no word of the layout.
_OTHER_WORDS = {"fault_record": {("store", "release", "sys")}}
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


Access = tuple[str, str, str]  # operation, order, scope


def documented(text: str, findings: list[str]) -> dict[str, set[Access]]:
    """Per word of the table "Words": the accesses that its row allows."""
    words: dict[str, set[Access]] = {}
    section = re.search(r"^## Words\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = [line for line in (section[1] if section else "").splitlines() if line.startswith("|")]
    if not rows:
        return words
    heads = [cell.strip() for cell in rows[0].strip("|").split("|")]
    column = heads.index("order, scope")
    for row in rows[2:]:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        word = cells[0].strip("`")
        words[word] = set()
        for clause in cells[column].split(";"):
            if clause.startswith("none"):
                continue
            match = _CLAUSE.fullmatch(clause.strip())
            if match is None:
                findings.append(
                    f"{WORDS_IN}: `{word}`: no operation, order and scope in '{clause}'"
                )
                continue
            words[word] |= {(op, match[2], match[3]) for op in match[1].split(" and ")}
    return words


def compare_with_words(tree: Tree) -> list[str]:
    """Tagged operations of the protocol against the rows of their words."""
    findings: list[str] = []
    words = documented(tree.files.get(WORDS_IN, ""), findings)
    used: dict[str, set[Access]] = {word: set() for word in words}
    for path, text in tree.cxx(PROTOCOL):
        if path in DEFINITIONS:
            continue
        code, lines = blank(text), text.splitlines()
        for match in _OF_ENVIRONMENT.finditer(code):
            access = (_METHODS[match[1]], match[2], match[3])
            where = f"{path}:{line_of(code, match.start())}"
            for word in {name for _, name in tags_at(lines, *statement(code, match.start()))}:
                allowed = words.get(word, _OTHER_WORDS.get(word))
                if allowed is None:
                    findings.append(f"{where}: [{word}] is no word of {WORDS_IN}")
                elif access not in allowed:
                    rows = "; ".join(" ".join(a) for a in sorted(allowed))
                    findings.append(
                        f"{where}: {' '.join(access)} of `{word}`, whose row in {WORDS_IN} says {rows}"
                    )
                used.setdefault(word, set()).add(access)
    for word, allowed in words.items():
        for access in sorted(allowed - used[word]):
            if access[1] != "relaxed":
                findings.append(f"{WORDS_IN}: `{word}`: no tagged {' '.join(access)} in {PROTOCOL}")
    return findings


def check(tree: Tree) -> list[str]:
    return partners(tree) + (compare_with_words(tree) if WORDS_IN in tree else [])


def partners(tree: Tree) -> list[str]:
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
