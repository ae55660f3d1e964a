"""Runs clang-tidy on the host sources (src/, ref/) that a build folder compiles.

Usage: tidy.py --build build/host [--jobs N] [file...]

Most of clang-tidy's time goes to parsing the headers of the standard library, fmt and nlohmann-json, so
the sources of one folder are looked at together, in one translation unit, as far as they compile
together (they do not where two of them use one name in an unnamed namespace: such a unit is halved). A
unit that passed is not looked at again until its preprocessed text, the checks or clang-tidy change.
Prints the findings and `counts: PASSED FAILED 0` in units. Exit status 1 on findings.
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
TIDY = "clang-tidy"
FOLDERS = ("src", "ref")
MOST_FILES = 12
TIMEOUT_S = 300
DOES_NOT_COMPILE = "[clang-diagnostic-error]"
# For files that include sources (cmake/MegamoeOptions.cmake); clang has no such warning.
GCC_ONLY = "-Wno-subobject-linkage"
INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
# In a compile command, after the launcher (ccache) and its environment.
COMPILER = re.compile(r"(?:^|/)(?:c|g|clang)\+\+(?:-\d+)?$")


def host_sources(build: Path) -> dict[Path, list[str]]:
    """Each host source under FOLDERS, with its compile flags."""
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    found = {}
    for entry in database:
        path = Path(entry["file"])
        together = path.suffix == ".cxx"  # CMake's own file, which includes sources
        paths = map(Path, INCLUDE.findall(path.read_text("utf-8"))) if together else [path]
        words = shlex.split(entry["command"])
        for path in paths:
            inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS
            if inside and path.suffix == ".cpp":
                compiler = next(i for i, word in enumerate(words) if COMPILER.search(word))
                flags = words[compiler + 1 : words.index("-o")]
                found[path] = [flag for flag in flags if flag != GCC_ONLY]
    return found


def write_unit(files: list[Path]) -> Path:
    """The translation unit that holds `files`: the only file itself, or one that includes them."""
    if len(files) == 1:
        return files[0]
    name = hashlib.sha256("".join(map(str, files)).encode()).hexdigest()[:16]
    path = WORK / f"{name}.cpp"
    path.write_text("".join(f'#include "{file}"\n' for file in files), encoding="utf-8")
    return path


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


def look_at(files: list[Path], flags: list[str], base: bytes) -> list[str | None]:
    """The answers about the few units that hold all `files`."""
    if len(files) <= MOST_FILES:
        answer = tidy(write_unit(files), flags, base)
        if answer is None or len(files) == 1 or DOES_NOT_COMPILE not in answer:
            return [answer]
    half = len(files) // 2
    return look_at(files[:half], flags, base) + look_at(files[half:], flags, base)


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
    # The largest first, so that the last ones to be looked at are short.
    folders.sort(key=lambda folder: len(folder[0]), reverse=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = [
            answer
            for part in pool.map(lambda folder: look_at(*folder, base), folders)
            for answer in part
        ]
    findings = [answer for answer in answers if answer]
    print("".join(f"{answer}\n" for answer in findings), end="")
    print(f"counts: {len(answers) - len(findings)} {len(findings)} 0")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
