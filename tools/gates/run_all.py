"""Runs every gate on the repository, then the gates' own tests.

Usage: run_all.py [--jobs N] [gate...]. Prints one line per gate, its findings, and
`counts: PASSED FAILED 0`. Exit status 1 if anything was found.
"""

import argparse
import sys
import time
import unittest
from collections.abc import Callable

import built
import device_rules
import headers
import includes
import links
import ordered_pairs
import sizes
import waits
import words
from tree import ROOT, Tree

GATES: dict[str, Callable[[Tree], list[str]]] = {
    "words": words.check,
    "sizes": sizes.check,
    "includes": includes.check,
    "device_rules": device_rules.check,
    "ordered_pairs": ordered_pairs.check,
    "waits": waits.check,
    "links": links.check,
    "built": built.check,
    "headers": headers.check,
}


def own_tests() -> tuple[int, int]:
    """Passed and failed tests of the gates themselves."""
    suite = unittest.defaultTestLoader.discover(str(ROOT / "tests/tools"))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    if result.testsRun == 0:
        print("tests/tools: no tests found")
        failed = 1
    return result.testsRun - failed, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "gates", nargs="*", help=f"of {', '.join(GATES)}; default: all, and their tests"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if unknown := [name for name in options.gates if name not in GATES]:
        parser.error(f"unknown gate '{unknown[0]}'; known: {', '.join(GATES)}")
    tree = Tree.of_repository()
    passed = failed = 0
    for name in options.gates or GATES:
        started = time.monotonic()
        gate = GATES[name]
        found = headers.check(tree, options.jobs) if name == "headers" else gate(tree)
        passed, failed = passed + (not found), failed + bool(found)
        state = f"{len(found)} findings" if found else "ok"
        print(f"gate {name}: {state} ({time.monotonic() - started:.1f} s)")
        print("".join(f"  {finding}\n" for finding in found), end="")
    if not options.gates:
        test_passed, test_failed = own_tests()
        passed, failed = passed + test_passed, failed + test_failed
    print(f"counts: {passed} {failed} 0")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
