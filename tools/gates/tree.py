"""The files that the gates look at, and the text helpers they share."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CXX_SUFFIXES = (".c", ".cpp", ".hpp", ".h", ".cu", ".cuh")
TEXT_SUFFIXES = (
    *CXX_SUFFIXES,
    *(".py", ".sh", ".md", ".txt", ".cmake", ".json", ".toml", ".csv", ".yml", ".in"),
)


class Tree(Mapping[str, str]):
    """Paths relative to the repository's root, with their text."""

    def __init__(self, files: dict[str, str]):
        self.files = files

    @classmethod
    def of_repository(cls) -> "Tree":
        """Tracked files, and untracked ones that git does not ignore."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        files = {}
        for name in sorted(names.decode().split("\0")):
            path = ROOT / name
            if name and path.is_file() and is_text(path):
                files[name] = path.read_text(encoding="utf-8", errors="replace")
        return cls(files)

    def __getitem__(self, path: str) -> str:
        return self.files[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def cxx(self, *folders: str) -> Iterator[tuple[str, str]]:
        """C++ and CUDA files, of the given folders only when there are any."""
        for path, text in self.files.items():
            if path.endswith(CXX_SUFFIXES) and (not folders or path.startswith(folders)):
                yield path, text


def is_text(path: Path) -> bool:
    return path.suffix in TEXT_SUFFIXES or path.parent.name == ".ci" or path.name.startswith(".")


_TOKEN = re.compile(
    r"""(?P<raw>R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')
      | (?P<line>//(?:\\\n|[^\n])*)
      | (?P<block>/\*.*?\*/)""",
    re.VERBOSE | re.DOTALL,
)


def blank(text: str, keep_strings: bool = False) -> str:
    """C++ with comments (and strings) replaced by spaces; lines and columns stay."""

    def replace(match: re.Match[str]) -> str:
        if keep_strings and match.lastgroup in ("raw", "string", "char", "tag"):
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _TOKEN.sub(replace, text)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def allowlist(text: str) -> dict[str, str]:
    """Lines `what | reason`; comments start with #. An entry without a reason is an error."""
    entries = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        what, _, reason = (part.strip() for part in line.partition("|"))
        if len(reason) < 10:
            raise ValueError(f"line {number}: '{what}' needs a reason after '|'")
        entries[what] = reason
    return entries
