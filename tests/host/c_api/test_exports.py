"""The shared library exports what the public headers declare with MEGAMOE_API, and nothing else.

Usage: test_exports.py LIBRARY --soname NAME
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

HEADERS = Path(__file__).resolve().parents[3] / "include/megamoe"
_C_FUNCTION = re.compile(r"MEGAMOE_API\s[^;]*?\b(megamoe_\w+)\(")
_CXX_FUNCTION = re.compile(r"MEGAMOE_API\s+(?!megamoe_)[^;{]*?(~?\w+)\(")
_CLASS = re.compile(r"class MEGAMOE_API (\w+)")
_SCOPE = re.compile(r"^(?:class|struct) (?:MEGAMOE_API )?(\w+)[^;]*\{(.*?)^\};", re.M | re.S)


def declared() -> tuple[set[str], set[str], set[str]]:
    """C functions; C++ functions with their class, without parameters; whole classes."""
    c_text = (HEADERS / "megamoe.h").read_text(encoding="utf-8")
    functions, classes = set(), set()
    for header in sorted(HEADERS.glob("*.hpp")):
        text = re.sub(r"//.*", "", header.read_text(encoding="utf-8"))
        classes |= set(_CLASS.findall(text))
        for scope in _SCOPE.finditer(text):
            functions |= {f"{scope[1]}::{name}" for name in _CXX_FUNCTION.findall(scope[2])}
        functions |= set(_CXX_FUNCTION.findall(_SCOPE.sub("", text)))
    return set(_C_FUNCTION.findall(c_text)), functions, classes


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout


def exported(library: str) -> set[str]:
    """Names of defined dynamic symbols, demangled."""
    lines = output("nm", "--dynamic", "--defined-only", "--demangle", library).splitlines()
    return {line.split(" ", 2)[2] for line in lines}


def findings(library: str, soname: str) -> list[str]:
    c_functions, cxx_functions, classes = declared()
    problems, seen = [], set()
    for symbol in sorted(exported(library)):
        name = re.sub(r"^(?:typeinfo name|typeinfo|vtable) for ", "", symbol)
        plain = re.sub(r"\[abi:\w+\]", "", name).split("(")[0].removeprefix("megamoe::")
        seen.add(plain)
        in_class = plain.split("::")[0] in classes
        if not (symbol in c_functions or plain in cxx_functions or in_class):
            problems.append(f"exported, but not public: {symbol}")
    problems += [
        f"public, but not exported: {name}"
        for name in sorted(c_functions | cxx_functions - seen)
        if name not in seen
    ]
    if not c_functions or not cxx_functions or not classes:
        problems.append("the headers declare nothing: are they read right?")
    if f"Library soname: [{soname}]" not in output("readelf", "--dynamic", library):
        problems.append(f"the SONAME is not {soname}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("--soname", required=True)
    options = parser.parse_args()
    problems = findings(options.library, options.soname)
    print("\n".join(problems) or "exports are the public interface")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
