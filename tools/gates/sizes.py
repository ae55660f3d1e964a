"""Files have at most 400 lines, those of the kernel's roles 300, and functions 60, or a reason in
sizes_allowlist.txt.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tree import Tree, allowlist, blank, line_of

MAX_FILE_LINES = 400
MAX_ROLE_LINES = 300
ROLES = "src/roles/"
MAX_FUNCTION_LINES = 60
ALLOWLIST = Path(__file__).with_name("sizes_allowlist.txt")

_SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|concept|requires)\b|\bextern\s*$")
_NAME = re.compile(r"([A-Za-z_~][\w:~]*|operator\s*[^\s(]+|operator\(\))\s*\(")


def head_kind(head: str) -> str:
    """What the brace after `head` opens: 'function', 'scope' (declarations inside) or 'other'."""
    head = re.sub(r"^\s*#.*$", "", head, flags=re.MULTILINE).strip()
    head = re.sub(r"\b(?:public|private|protected)\s*:", "", head).strip()
    while (
        shorter := re.sub(r"^template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*", "", head)
    ) != head:
        head = shorter
    head = re.sub(r"^requires\b[^{}]*?\)\s*(?=\w)", "", head)
    before_call = head.split("(")[0]
    if _SCOPE.search(before_call) and not re.search(r"\b(?:struct|class|enum)\s+\w+\s*[*&]", head):
        return "scope"
    if "(" not in head or re.search(r"(?<![=!<>])=\s*$|\breturn\b", head) or "=" in before_call:
        return "other"
    return "function"


def cxx_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, first line, lines) of each function with a body; lambdas count in their function."""
    code = blank(text)
    stack: list[tuple[str, str, int]] = []
    start = 0  # of the text before the next brace, at the level of declarations
    for match in re.finditer(r"[{};]", code):
        at, mark = match.start(), match[0]
        inside_body = bool(stack) and stack[-1][0] != "scope"
        if mark == "{":
            head = code[start:at]
            kind = "other" if inside_body else head_kind(head)
            name = _NAME.search(re.sub(r"\b(?:decltype|alignas|noexcept|requires)\s*\(", "", head))
            stack.append((kind, name[1] if name else "?", start + len(head) - len(head.lstrip())))
            if kind == "scope":
                start = at + 1
        elif mark == "}":
            if not stack:
                continue
            kind, name_, begin = stack.pop()
            follows = code[at + 1 :].lstrip()[:1]
            if kind == "function" and follows in ("{", ","):
                # A brace of a constructor's initialiser list: the body is still to come.
                start = begin
                continue
            if kind == "function":
                first_line = line_of(code, begin)
                yield name_, first_line, line_of(code, at) - first_line + 1
            if not stack or stack[-1][0] == "scope":
                start = at + 1
        elif not inside_body:
            start = at + 1


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def check(tree: Tree, allowed: dict[str, str] | None = None) -> list[str]:
    if allowed is None:
        allowed = allowlist(ALLOWLIST.read_text(encoding="utf-8"))
    findings, used = [], set()

    def finding(key: str, message: str) -> None:
        if key in allowed:
            used.add(key)
        else:
            findings.append(message)

    for path, text in tree.items():
        is_python = path.endswith(".py")
        if not is_python and not path.endswith((".cpp", ".hpp", ".h", ".cu", ".cuh", ".sh")):
            continue
        lines = text.count("\n")
        most = MAX_ROLE_LINES if path.startswith(ROLES) else MAX_FILE_LINES
        if lines > most:
            finding(path, f"{path}: {lines} lines, {most} are allowed")
        if path.endswith(".sh"):
            continue
        functions = python_functions(text) if is_python else cxx_functions(text)
        for name, line, length in functions:
            if length > MAX_FUNCTION_LINES:
                message = f"{path}:{line}: {name} has {length} lines, {MAX_FUNCTION_LINES} allowed"
                finding(f"{path}:{name}", message)
    stale = sorted(set(allowed) - used)
    return findings + [f"{ALLOWLIST.name}: '{key}' is no longer needed" for key in stale]
