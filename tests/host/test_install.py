"""Installs the build to a temporary prefix, moves it, and builds and runs the example projects
against it: through find_package, both libraries, and through pkg-config.

Usage: test_install.py --build FOLDER --version VERSION
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "examples/installed_package"
LIMIT_S = 60


def run(*command: str | Path, **env: str) -> str:
    """Standard output of a command that must succeed."""
    result = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **env},
    )
    if result.returncode != 0:
        words = " ".join(str(part) for part in command)
        sys.exit(f"{words}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def expect(what: str, found: str, wanted: str) -> None:
    if wanted not in found:
        sys.exit(f"{what}: '{wanted}' is not in:\n{found}")
    print(f"ok {what}")


def install(build: Path, folder: Path) -> Path:
    """The prefix, which is not where the installation was made: nothing may hold its path."""
    first = folder / "first"
    run("cmake", "--install", build, "--prefix", first)
    prefix = folder / "moved"
    first.rename(prefix)
    for file in prefix.rglob("*"):
        if file.suffix in (".cmake", ".pc") and str(ROOT) in file.read_text(encoding="utf-8"):
            sys.exit(f"{file.relative_to(prefix)} names the source folder")
    return prefix


def check_headers(prefix: Path) -> None:
    wanted = {p.name for p in (ROOT / "include/megamoe").iterdir()}
    found = {p.name for p in (prefix / "include/megamoe").iterdir()}
    if wanted != found:
        sys.exit(f"headers installed: {sorted(found)}, of the source: {sorted(wanted)}")
    print(f"ok {len(found)} headers")


def check_cmake(prefix: Path, folder: Path, version: str) -> None:
    out = folder / "cmake"
    run("cmake", "-S", PROJECT, "-B", out, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", out, "-j", "2")
    for program in ("uses_megamoe", "uses_megamoe_static"):
        expect(program, run(out / program), f"megamoe {version}: 1 call finished")
    needed = run("readelf", "--dynamic", out / "uses_megamoe")
    expect("the shared one needs the SONAME", needed, "[libmegamoe.so.0]")
    if "libmegamoe" in run("readelf", "--dynamic", out / "uses_megamoe_static"):
        sys.exit("uses_megamoe_static needs the shared library")


def check_pkg_config(prefix: Path, folder: Path, version: str) -> None:
    files = list(prefix.rglob("megamoe.pc"))
    if len(files) != 1:
        sys.exit(f"megamoe.pc: {len(files)} found")
    path = {"PKG_CONFIG_PATH": str(files[0].parent)}
    expect("pkg-config", run("pkg-config", "--modversion", "megamoe", **path), version)
    expect("static", run("pkg-config", "--static", "--libs", "megamoe", **path), "-lstdc++")
    out = folder / "make"
    out.mkdir()
    run("make", "-C", PROJECT, f"OUT={out}", **path)
    expect("small_layer", run(out / "small_layer"), "0x3F3B, expected 0x3F3B")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--version", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix = install(options.build, folder)
        check_headers(prefix)
        expect("the program", run(prefix / "bin/megamoe", "--version"), options.version)
        check_cmake(prefix, folder, options.version)
        check_pkg_config(prefix, folder, options.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
