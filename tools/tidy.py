"""Runs clang-tidy on the host sources (src/, ref/) that a build folder compiles.

Usage: tidy.py --build build/host [--jobs N] [file...]. A file that passed is not looked at again until
its preprocessed text, the checks or clang-tidy change. Prints the findings and
`counts: PASSED FAILED 0` in files. Exit status 1 on findings.
"""

import argparse
import hashlib
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build/check/tidy"
TIDY = "clang-tidy-14"
FOLDERS = ("src", "ref")
TIMEOUT_S = 180


def commands(build: Path) -> dict[Path, list[str]]:
    """The compile command of each host source under FOLDERS."""
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    found = {}
    for entry in database:
        path = Path(entry["file"])
        inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS
        if inside and path.suffix == ".cpp":
            found[path] = shlex.split(entry["command"])
    return found


def digest(build: Path, path: Path, command: list[str], base: bytes) -> str:
    """Of everything that decides clang-tidy's answer for one file."""
    if "ccache" in command[0]:
        command = command[1:]
    # -C keeps comments: they hold NOLINT marks.
    end = command.index("-o")
    preprocess = [*command[:end], "-E", "-C", str(path)]
    text = subprocess.run(preprocess, cwd=build, capture_output=True).stdout
    # What cannot be preprocessed has its own digest too; clang-tidy says what is wrong with it.
    return hashlib.sha256(base + shlex.join(command).encode() + text).hexdigest()


def tidy(build: Path, path: Path, command: list[str], base: bytes) -> str | None:
    """What clang-tidy found in one file, or None."""
    mark = CACHE / digest(build, path, command, base)
    if mark.exists():
        return None
    try:
        result = subprocess.run(
            [TIDY, "-p", str(build), "--quiet", str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"{path}: took more than {TIMEOUT_S} s"
    if result.returncode == 0:
        mark.touch()
        return None
    return result.stdout.replace(f"{ROOT}/", "") or result.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", type=Path, help="default: all host sources")
    options = parser.parse_args()
    build = options.build.resolve()
    work = commands(build)
    if options.files:
        wanted = {path.resolve() for path in options.files}
        work = {path: command for path, command in work.items() if path in wanted}
    if not work:
        print(f"no host sources found in {build}/compile_commands.json")
        return 1
    CACHE.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    base = version + (ROOT / ".clang-tidy").read_bytes()
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(lambda item: tidy(build, item[0], item[1], base), work.items()))
    findings = [answer for answer in answers if answer]
    print("".join(f"{answer}\n" for answer in findings), end="")
    print(f"counts: {len(answers) - len(findings)} {len(findings)} 0")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
