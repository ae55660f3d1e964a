"""Where device code may ask for its architecture, and how it may read what a kernel writes."""

import re

from tree import Tree, blank, line_of

_ARCH = re.compile(r"__CUDA_ARCH\w*__")
# Architecture-dependent code: single instructions, and the parts made of them.
_ARCH_ALLOWED = re.compile(
    r"^src/(?:ptx/|config/|numerics/hd\.hpp|roles/.*(?:loader|math|epilogue))"
)
_READ_ONLY_LOAD = re.compile(r"\bld\.global[\w.:]*\.nc\b|\b__ldg\s*\(")
_READ_ONLY_FORBIDDEN = ("src/roles/", "src/kernels/", "src/protocol/")


def check(tree: Tree) -> list[str]:
    findings = []
    for path, text in tree.cxx("src/", "include/", "sim/"):
        code = blank(text, keep_strings=True)
        if not _ARCH_ALLOWED.match(path):
            for match in _ARCH.finditer(code):
                where = f"{path}:{line_of(text, match.start())}"
                findings.append(
                    f"{where}: {match[0]} outside ptx/, config/, loader, math, epilogue"
                )
        if path.startswith(_READ_ONLY_FORBIDDEN):
            for match in _READ_ONLY_LOAD.finditer(code):
                where = f"{path}:{line_of(text, match.start())}"
                findings.append(f"{where}: {match[0]}: read-only load of what a kernel may write")
    return findings
