"""Runs clang-tidy on the host sources (src/, ref/) that a build folder compiles.

Usage: tidy.py --build build/host [--jobs N] [file...]

Most of clang-tidy's time goes to the headers of the standard library, fmt and nlohmann-json, so the
sources of one folder are looked at together, in one translation unit, as far as they compile together
(they do not where two of them use one name in an unnamed namespace). A unit that passed is not looked
at again until its preprocessed text, the checks or clang-tidy change. Prints the findings and
`counts: PASSED FAILED 0` in units. Exit status 1 on findings.
"""

import argparse
import hashlib
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build/check/tidy"
TIDY = "clang-tidy-14"
FOLDERS = ("src", "ref")
MOST_FILES = 12
TIMEOUT_S = 300
# In a compile command, after the launcher (ccache) and its environment.
COMPILER = re.compile(r"(?:^|/)(?:c|g|clang)\+\+(?:-\d+)?$")


def host_sources(build: Path) -> dict[Path, list[str]]:
    """Each host source under FOLDERS, with its compile flags."""
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    found = {}
    for entry in database:
        path = Path(entry["file"])
        inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS
        if inside and path.suffix == ".cpp":
            words = shlex.split(entry["command"])
            compiler = next(i for i, word in enumerate(words) if COMPILER.search(word))
            found[path] = words[compiler + 1 : words.index("-o")]
    return found


def write_unit(files: list[Path]) -> Path:
    """The translation unit that holds `files`: the only file itself, or one that includes them."""
    if len(files) == 1:
        return files[0]
    name = hashlib.sha256("".join(map(str, files)).encode()).hexdigest()[:16]
    path = WORK / f"{name}.cpp"
    path.write_text("".join(f'#include "{file}"\n' for file in files), encoding="utf-8")
    return path


def compiles(unit: Path, flags: list[str]) -> bool:
    command = ["g++", *flags, "-w", "-fsyntax-only", str(unit)]
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S).returncode == 0


def units(files: list[Path], flags: list[str]) -> list[Path]:
    """Few units that hold all `files`."""
    unit = write_unit(files)
    if len(files) == 1 or (len(files) <= MOST_FILES and compiles(unit, flags)):
        return [unit]
    half = len(files) // 2
    return units(files[:half], flags) + units(files[half:], flags)


def digest(unit: Path, flags: list[str], base: bytes) -> str:
    """Of everything that decides clang-tidy's answer for one unit."""
    # -C keeps comments: they hold NOLINT marks.
    preprocess = ["g++", *flags, "-E", "-C", str(unit)]
    text = subprocess.run(preprocess, capture_output=True).stdout
    # What cannot be preprocessed has its own digest too; clang-tidy says what is wrong with it.
    return hashlib.sha256(base + shlex.join(flags).encode() + text).hexdigest()


def tidy(unit: Path, flags: list[str], base: bytes) -> str | None:
    """What clang-tidy found in one unit, or None."""
    mark = WORK / digest(unit, flags, base)
    if mark.exists():
        return None
    config = f"--config-file={ROOT / '.clang-tidy'}"
    command = [TIDY, config, "--quiet", str(unit), "--", *flags]
    if unit.is_relative_to(WORK):
        command.insert(1, "--checks=-bugprone-suspicious-include")
    try:
        result = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"{unit}: took more than {TIMEOUT_S} s"
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
    sources = host_sources(options.build.resolve())
    if options.files:
        wanted = {path.resolve() for path in options.files}
        sources = {path: flags for path, flags in sources.items() if path in wanted}
    if not sources:
        print(f"no host sources found in {options.build}/compile_commands.json")
        return 1
    WORK.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    base = version + (ROOT / ".clang-tidy").read_bytes()
    alike = groupby(sorted(sources), key=lambda path: (path.parent, sources[path]))
    folders = [(list(files), flags) for (_, flags), files in alike]
    with ThreadPoolExecutor(options.jobs) as pool:
        split = pool.map(lambda folder: units(*folder), folders)
        work = [(unit, flags) for part, (_, flags) in zip(split, folders) for unit in part]
        answers = list(pool.map(lambda item: tidy(*item, base), work))
    findings = [answer for answer in answers if answer]
    print("".join(f"{answer}\n" for answer in findings), end="")
    print(f"counts: {len(answers) - len(findings)} {len(findings)} 0")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
