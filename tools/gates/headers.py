"""Every .hpp and .h compiles alone with a plain C++20 compiler; those of the folders that device code
shares also with nvcc, where there is one.

A header that is the first thing its own .cpp includes is proven by the build, and not compiled here
again; neither are headers that have not changed since they passed.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tree import ROOT, Tree

CACHE = ROOT / "build/check/headers"
DEVICE_FOLDERS = ("src/config/", "src/numerics/", "src/layout/", "src/protocol/")
FLAGS = ["-std=c++20", "-I", "include", "-I", "src", "-I", "."]
FLAGS += ["-isystem", "/usr/include/eigen3"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
TIMEOUT_S = 120
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def closure(tree: Tree, path: str) -> list[str]:
    """The repository's files that `path` includes, itself among them."""
    seen, todo = set(), [path]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        folder = current.rsplit("/", 1)[0]
        for name in _INCLUDE.findall(tree[current]):
            candidates = (f"include/{name}", f"src/{name}", name, f"{folder}/{name}")
            todo.extend(candidate for candidate in candidates if candidate in tree)
    return sorted(seen)


def digest(tree: Tree, paths: list[str], compiler: list[str]) -> str:
    version = subprocess.run([compiler[0], "--version"], capture_output=True, check=True).stdout
    sha = hashlib.sha256(version + "\0".join(compiler).encode())
    for file in sorted({file for path in paths for file in closure(tree, path)}):
        sha.update(f"\0{file}\0{tree[file]}".encode())
    return sha.hexdigest()


def include_name(path: str) -> str:
    return path.removeprefix("include/").removeprefix("src/")


def compile_alone(paths: list[str], compiler: list[str], suffix: str, root: Path) -> str | None:
    """Compiles one file that includes `paths`, the first of them twice; returns what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"alone{suffix}"
        names = [include_name(path) for path in [*paths, paths[0]]]
        source.write_text("".join(f'#include "{name}"\n' for name in names), encoding="utf-8")
        command = [part.replace("{out}", f"{folder}/alone.o") for part in compiler]
        try:
            result = subprocess.run(
                [*command, str(source)], cwd=root, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return f"{', '.join(paths)}: took more than {TIMEOUT_S} s"
    if result.returncode == 0:
        return None
    return f"{', '.join(paths)} alone with {compiler[0]}:\n{result.stderr[-3000:]}"


def first_of_its_source(tree: Tree, path: str) -> bool:
    """Whether the .cpp beside a header includes the header before anything else."""
    source = tree.get(path.rsplit(".", 1)[0] + ".cpp", "")
    first = _INCLUDE.search(source)
    return first is not None and first[1] == include_name(path)


def find_nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def check(tree: Tree, jobs: int = 2, root: Path = ROOT, cache: Path | None = CACHE) -> list[str]:
    headers = [path for path in tree if path.endswith((".hpp", ".h"))]
    plain = ["g++", *FLAGS, *WARNINGS, "-fsyntax-only"]
    work = [([path], plain, ".cpp") for path in headers if not first_of_its_source(tree, path)]
    nvcc = find_nvcc()
    shared = [path for path in headers if path.startswith(DEVICE_FOLDERS)]
    if nvcc and shared:
        flags = [*FLAGS, "--expt-relaxed-constexpr", "-arch=sm_90a", "-Xcompiler=-Wall", "-c"]
        work.append((shared, [nvcc, *flags, "-o", "{out}"], ".cu"))
    work.sort(key=lambda item: item[2], reverse=True)

    def one(item: tuple[list[str], list[str], str]) -> str | None:
        paths, compiler, suffix = item
        mark = cache / digest(tree, paths, compiler) if cache else None
        if mark and mark.exists():
            return None
        problem = compile_alone(paths, compiler, suffix, root)
        if mark and problem is None:
            mark.touch()
        return problem

    if cache:
        cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        return [problem for problem in pool.map(one, work) if problem]
