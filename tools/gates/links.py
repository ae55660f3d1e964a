"""Links in Markdown files lead to files, and anchors to headings, that exist."""

import posixpath
import re

from tree import ROOT, Tree, line_of

_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


def anchors(text: str) -> set[str]:
    """Anchors of a document's headings, as web views of repositories make them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*$", without_code_blocks(text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{i}" if i else slug for slug, count in found.items() for i in range(count + 1)}


def without_code_blocks(text: str) -> str:
    return _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def check(tree: Tree) -> list[str]:
    findings = []
    folders = {posixpath.dirname(path) for path in tree}
    folders |= {parent for folder in folders for parent in parents(folder)}
    for path, text in tree.items():
        if not path.endswith(".md"):
            continue
        prose = _CODE.sub(lambda match: " " * len(match[0]), without_code_blocks(text))
        for match in _LINK.finditer(prose):
            target = match[1] or match[2]
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            full = (
                posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
            )
            where = f"{path}:{line_of(text, match.start())}"
            if full not in tree and full not in folders and not (ROOT / full).is_file():
                findings.append(f"{where}: no file {full}")
            elif anchor and full in tree and anchor not in anchors(tree[full]):
                findings.append(f"{where}: no heading #{anchor} in {full}")
    return findings


def parents(folder: str) -> set[str]:
    parts = folder.split("/")
    return {"/".join(parts[:i]) for i in range(1, len(parts))}
