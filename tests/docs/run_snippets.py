"""Runs the commands and compiles the programs that the documents show.

Usage: run_snippets.py --build build/host [file.md...]   (default: every Markdown file)

A fenced block's info string says what happens to it:
  sh                     runs with `bash -eu` in the repository's root, the build's megamoe in PATH
  cpp                    compiles against the library; a block with `int main` also links and runs
  python                 runs with build/python/site, where tools/check.sh python installs the package
  text output            the output of the block before, in order; a line `...` stands for any lines
  sh limit=90            seconds it may take (default 60)
  sh not-run: reason     is shown only; the reason is not optional
Blocks of other languages are text. A command may write below build/ only. Prints one line per block
and `counts: PASSED FAILED 0`.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_LIMIT_S = 60
_FENCE = re.compile(r"^(```+)([^\n`]*)\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


class SnippetError(Exception):
    """A block that does not do what its document says."""


@dataclass
class Snippet:
    where: str  # file:line
    language: str
    info: str  # what follows the language
    text: str

    @property
    def limit_s(self) -> int:
        match = re.search(r"\blimit=(\d+)\b", self.info)
        return int(match[1]) if match else DEFAULT_LIMIT_S

    def not_run(self) -> bool:
        if not self.info.startswith("not-run"):
            return False
        if not re.fullmatch(r"not-run: \S.{9,}", self.info):
            raise SnippetError("'not-run' needs ': ' and a reason")
        return True


def snippets(path: str, text: str) -> list[Snippet]:
    found = []
    for match in _FENCE.finditer(text):
        language, _, info = match[2].strip().partition(" ")
        line = text.count("\n", 0, match.start()) + 1
        found.append(Snippet(f"{path}:{line}", language, info.strip(), match[3]))
    return found


def run(command: list[str], limit_s: int, env: dict[str, str] | None = None) -> str:
    """Standard output and error of a command that leaves no process behind."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise SnippetError(f"took more than {limit_s} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise SnippetError(f"exit status {process.returncode}\n{output[-4000:]}")
    return output


def changes() -> set[str]:
    command = ["git", "status", "--porcelain"]
    return set(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    )


def run_shell(snippet: Snippet, build: Path) -> str:
    folders = sorted({str(path.parent) for path in build.glob("**/megamoe") if path.is_file()})
    env = {**os.environ, "PATH": os.pathsep.join([*folders, os.environ["PATH"]])}
    before = changes()
    output = run(["bash", "-eu", "-o", "pipefail", "-c", snippet.text], snippet.limit_s, env)
    if left := changes() - before:
        raise SnippetError(f"changed files outside build/: {', '.join(sorted(left))}")
    return output


def run_cpp(snippet: Snippet, build: Path) -> str:
    libraries = [*build.glob("src/libmegamoe.a")]
    if not libraries:
        raise SnippetError(f"no libmegamoe in {build}/src: build it first")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "snippet.cpp", Path(folder) / "snippet"
        source.write_text(snippet.text, encoding="utf-8")
        compiler = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Iinclude", str(source)]
        if "int main" not in snippet.text:
            return run([*compiler, "-fsyntax-only"], snippet.limit_s)
        run([*compiler, *map(str, libraries), "-pthread", "-o", str(program)], snippet.limit_s)
        return run([str(program)], snippet.limit_s)


def run_python(snippet: Snippet, build: Path) -> str:
    site = build.parent / "python/site"
    if not (site / "megamoe").exists():
        raise SnippetError(f"no Python package in {site}: run tools/check.sh python first")
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    python = build.parent / "venv/bin/python"
    return run([str(python), "-c", snippet.text], snippet.limit_s, env)


RUNNERS = {"sh": run_shell, "cpp": run_cpp, "python": run_python}


def check_output(snippet: Snippet, output: str | None) -> None:
    """Raises unless `output` is what the block shows, white space at line ends aside."""
    if output is None:
        raise SnippetError("'text output' has no block before it that ran")
    rows = [row.rstrip() for row in snippet.text.strip().splitlines()]
    pattern = "".join(r"(?:.*\n)*" if row == "..." else re.escape(row) + r"\n" for row in rows)
    printed = "".join(f"{row.rstrip()}\n" for row in output.strip().splitlines())
    if not re.fullmatch(pattern, printed):
        raise SnippetError(f"the output is not the one shown, but\n{output[-4000:]}")


def check_file(path: str, text: str, build: Path) -> tuple[int, int]:
    """Passed and failed blocks of one document."""
    passed = failed = 0
    output: str | None = None
    for snippet in snippets(path, text):
        is_output = snippet.language == "text" and snippet.info == "output"
        if snippet.language not in RUNNERS and not is_output:
            continue
        started = time.monotonic()
        try:
            if snippet.not_run():
                output = None
                continue
            if is_output:
                check_output(snippet, output)
            else:
                output = None
                output = RUNNERS[snippet.language](snippet, build)
            passed += 1
            print(f"ok     {snippet.where} {snippet.language} ({time.monotonic() - started:.1f} s)")
        except SnippetError as error:
            failed += 1
            print(f"FAILED {snippet.where} {snippet.language}: {error}")
    return passed, failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    files = options.files
    if not files:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        files = sorted(file for file in listed.splitlines() if (ROOT / file).exists())
    totals = [
        check_file(file, (ROOT / file).read_text(encoding="utf-8"), options.build.resolve())
        for file in files
    ]
    passed, failed = sum(pair[0] for pair in totals), sum(pair[1] for pair in totals)
    if passed + failed == 0:
        print("no block was run: the documents show no command and no program")
        failed = 1
    print(f"counts: {passed} {failed} 0")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
