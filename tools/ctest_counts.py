"""Turns ctest's closing lines into `counts: PASSED FAILED SKIPPED`.

Usage: ctest_counts.py FILE. A test that did not run never counts as passed.
"""

import re
import sys


def counts(text: str) -> tuple[int, int, int]:
    """Passed, failed and skipped tests in ctest's output; raises ValueError without a summary."""
    summary = re.search(r"^\d+% tests passed, (\d+) tests? failed out of (\d+)", text, re.MULTILINE)
    if not summary:
        raise ValueError("ctest printed no summary")
    failed, total = int(summary[1]), int(summary[2])
    not_run = re.findall(r"^\s*\d+ - .* \((Skipped|Disabled)\)", text, re.MULTILINE)
    # ctest's total holds the skipped tests, and among the passed ones, but not the disabled ones.
    return total - failed - not_run.count("Skipped"), failed, len(not_run)


def main() -> int:
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        passed, failed, skipped = counts(text)
    except ValueError as error:
        print(f"{sys.argv[1]}: {error}")
        return 1
    print(f"counts: {passed} {failed} {skipped}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
