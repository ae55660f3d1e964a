"""Every source file is named by the CMakeLists.txt of its folder or of one above: a test that is
not built is never run. pytest finds the tests of the Python package by itself."""

import posixpath
import re

from tree import Tree

_FOREACH = re.compile(r"foreach\((\w+)\s+([^)]*)\)(.*?)endforeach", re.DOTALL)


def expanded(text: str) -> str:
    """A list file with the bodies of its foreach loops written out."""

    def write_out(match: re.Match[str]) -> str:
        values = [value for value in match[2].split() if value not in ("IN", "ITEMS")]
        return "\n".join(match[3].replace(f"${{{match[1]}}}", value) for value in values)

    return _FOREACH.sub(write_out, text)


def check(tree: Tree) -> list[str]:
    findings = []
    for path in tree:
        name = posixpath.basename(path)
        folder = posixpath.dirname(path)
        is_source = path.endswith((".c", ".cpp", ".cu"))
        is_test_script = path.startswith("tests/") and path.endswith(".py") and "test" in name
        if not (is_source or is_test_script) or path.startswith(("tests/tools/", "tests/python/")):
            continue
        lists = []
        while folder:
            lists.append(f"{folder}/CMakeLists.txt")
            folder = posixpath.dirname(folder)
        lists += ["CMakeLists.txt"]
        if not any(mentions(expanded(tree.get(file, "")), path, file, name) for file in lists):
            findings.append(f"{path}: no CMakeLists.txt names it")
    return findings


def mentions(text: str, path: str, list_file: str, name: str) -> bool:
    """Whether a list file names `path`, as a file or, for tests of one form, by its stem."""
    relative = path.removeprefix(posixpath.dirname(list_file) + "/")
    stem = name.rsplit(".", 1)[0]
    words = set(text.replace("(", " ").replace(")", " ").replace('"', " ").split())
    return any(word.endswith(relative) for word in words) or stem in words
