"""Text that does not belong in the repository: marks of unfinished work and of one machine."""

import re

from tree import CXX_SUFFIXES, Tree, line_of

# The patterns are put together from parts so that this file does not match itself.
_UNFINISHED = "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"])
_PLACES = "|".join(["home", "root", "work", "Users"])
RULES = (
    (re.compile(rf"\b(?:{_UNFINISHED})\b"), "unfinished work: finish it or say what is missing"),
    (re.compile(rf"(?<![\w.$}}/])/(?:{_PLACES})/"), "an absolute path of one machine"),
    (re.compile(r"^(?:<{7} |>{7} |={7}$)", re.MULTILINE), "a conflict marker"),
    (re.compile(r"[ \t]+$", re.MULTILINE), "white space at the end of a line"),
)
CODE_RULES = (
    (
        re.compile(
            r"^\s*//(?!/)\s*(?:[\w:.<>\[\]*&]|->)+\s*(?:\([^\n]*\)|=[^\n=]*);\s*$", re.MULTILINE
        ),
        "commented-out code",
    ),
    (re.compile(r"#\s*if\s+0\b"), "code that is never compiled"),
)


def check(tree: Tree) -> list[str]:
    findings = []
    for path, text in tree.items():
        rules = RULES + (CODE_RULES if path.endswith(CXX_SUFFIXES) else ())
        for pattern, what in rules:
            for match in pattern.finditer(text):
                findings.append(
                    f"{path}:{line_of(text, match.start())}: {what}: {match[0].strip()!r}"
                )
    return findings
