"""Where device code may ask for its architecture, and how it may read what a kernel writes."""

import re

from tree import Tree, blank, line_of

# The compiler's macros, the project's name for one of them, and libcu++'s.
_ARCH = re.compile(r"\b(?:__CUDA_ARCH\w*|MEGAMOE_SM90A|NV_IF_\w+)")
_ARCH_FOLDER = "src/ptx/"  # single instructions
# Other files that may, with the reason.
_ARCH_FILES = {
    "src/kernels/fused_moe.cuh": "the kernel's body is empty where wgmma cannot be assembled",
    "src/roles/device_env.cuh": "its functions run on the host too, without clock and proxy fence",
}
_READ_ONLY_LOAD = re.compile(r"\bld\.global[\w.:]*\.nc\b|\b__ldg\s*\(")
_READ_ONLY_FORBIDDEN = ("src/roles/", "src/kernels/", "src/protocol/")


def check(tree: Tree) -> list[str]:
    findings = []
    for path, text in tree.cxx("src/", "include/", "sim/"):
        code = blank(text, keep_strings=True)
        asks = list(_ARCH.finditer(code))
        if path in _ARCH_FILES and not asks:
            findings.append(f"{path}: its exception in device_rules.py is no longer needed")
        if path not in _ARCH_FILES and not path.startswith(_ARCH_FOLDER):
            for match in asks:
                where = f"{path}:{line_of(text, match.start())}"
                findings.append(f"{where}: {match[0]} outside {_ARCH_FOLDER}")
        if path.startswith(_READ_ONLY_FORBIDDEN):
            for match in _READ_ONLY_LOAD.finditer(code):
                where = f"{path}:{line_of(text, match.start())}"
                findings.append(f"{where}: {match[0]}: read-only load of what a kernel may write")
    return findings
