"""Includes point one way: from the command line and Python down to the configuration."""

import re

from tree import Tree, blank, line_of

# Folder -> folders whose headers it may include, besides its own and the public ones (megamoe/).
_CONFIG: set[str] = set()
_NUMERICS = {"config"}
_PTX: set[str] = {"numerics"}
_LAYOUT = {"config", "numerics", "ptx"}
_PROTOCOL = _LAYOUT | {"layout"}
_ROLES = _PROTOCOL | {"protocol"}
_KERNELS = _ROLES | {"roles"}
_HOST = _KERNELS | {"kernels", "cpu"}
ALLOWED: dict[str, set[str]] = {
    "include/megamoe": set(),
    "src/config": _CONFIG,
    "src/numerics": _NUMERICS,
    "src/ptx": _PTX,
    "src/layout": _LAYOUT,
    "src/protocol": _PROTOCOL,
    "src/roles": _ROLES,
    "src/kernels": _KERNELS,
    # The CPU backend and the simulator stand beside the host code: they run the same protocol.
    "src/cpu": _PROTOCOL | {"protocol"},
    "sim": _PROTOCOL | {"protocol"},
    "src/host": _HOST,
    # The border to C stands on the public C++ interface alone.
    "src/c_api": set(),
    "src/cli": _HOST | {"host", "ref"},
    "python": _HOST | {"host", "ref"},
}
# Only the public headers: what an installed copy offers.
PUBLIC_ONLY = ("examples/",)
# May include anything: they check the rest.
FREE = ("ref/", "tests/", "bench/")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(megamoe/[^>]+)>)', re.MULTILINE)


def folder_of(path: str) -> str | None:
    """The longest folder of ALLOWED that holds `path`."""
    holders = [folder for folder in ALLOWED if path.startswith(folder + "/")]
    return max(holders, key=len, default=None)


def why_forbidden(path: str, header: str) -> str | None:
    if header.startswith("megamoe/") or path.startswith(FREE):
        return None
    top = header.split("/")[0]
    if path.startswith(PUBLIC_ONLY):
        return "examples use the public headers only"
    folder = folder_of(path)
    if folder is None:
        return "this folder has no place in the include order (tools/gates/includes.py)"
    if "/" not in header:
        return 'write the path from src/, as in "config/kernel_config.hpp"'
    own = folder.removeprefix("src/")
    if top == own or top in ALLOWED[folder]:
        return None
    return f"{folder} may include {', '.join(sorted({own, 'megamoe', *ALLOWED[folder]}))}"


def exists(tree: Tree, path: str, header: str) -> bool:
    """True for a header of the repository, found as the build finds it."""
    folder = path.rsplit("/", 1)[0]
    return any(
        name in tree
        for name in (f"include/{header}", f"src/{header}", header, f"{folder}/{header}")
    )


def missing_headers(tree: Tree) -> list[str]:
    """Quoted names that no file has: the host's build does not see all of them."""
    findings = []
    for path, text in tree.cxx():
        for match in _INCLUDE.finditer(blank(text, keep_strings=True)):
            header = match[1] or match[2]
            if not exists(tree, path, header):
                findings.append(f'{path}:{line_of(text, match.start())}: "{header}": no such file')
    return findings


def check(tree: Tree) -> list[str]:
    return forbidden_headers(tree) + missing_headers(tree)


def forbidden_headers(tree: Tree) -> list[str]:
    findings = []
    for path, text in tree.cxx():
        for match in _INCLUDE.finditer(blank(text, keep_strings=True)):
            header = match[1] or match[2]
            if why := why_forbidden(path, header):
                findings.append(f'{path}:{line_of(text, match.start())}: "{header}": {why}')
    return findings
