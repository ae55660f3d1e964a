"""Reads a log of compute-sanitizer's racecheck and judges its reports by the source lines they name.

    race_reports.py LOG --within FILE...    fails when a report names a line outside these files, or none
    race_reports.py LOG --names FILE...     fails unless a report names a line of one of these files

Prints every group of reports: how many, and the lines of its accesses. Line numbers are there only
where the kernel was compiled with -lineinfo.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

START = re.compile(r"Race reported between|Potential \w+ hazard")
ACCESS = re.compile(r"\b(Read|Write|Atomic)\b.* access at |\b(Read|Write|Atomic) Thread .* at ")
PLACE = re.compile(r" in (?:[^\s:]*/)?([\w.-]+:\d+)")
SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards?")
NO_LINE = "no line"


def reports_of(text):
    """Of each report the places of its accesses, as a sorted tuple of FILE:LINE."""
    reports = []
    for line in text.splitlines():
        if START.search(line):
            reports.append([])
        elif not line.strip("= \t"):
            continue
        if reports and ACCESS.search(line):
            place = PLACE.search(line)
            reports[-1].append(place.group(1) if place else NO_LINE)
    return [tuple(sorted(set(places or [NO_LINE]))) for places in reports]


def is_within(report, files):
    return all(place.rpartition(":")[0] in files for place in report)


def names_one_of(report, files):
    return any(place.rpartition(":")[0] in files for place in report)


def judge(text, within, names):
    """The lines to print, and whether the reports are as they should be."""
    summary = SUMMARY.search(text)
    if not summary:
        return ["no summary of racecheck"], False
    reports = reports_of(text)
    groups = Counter(reports)
    lines = []
    outside = 0
    for report, count in sorted(groups.items()):
        inside = within is None or is_within(report, within)
        outside += 0 if inside else count
        lines.append(f"{'' if inside else 'OUTSIDE '}{count} x {' | '.join(report)}")
    right = True
    if bool(reports) != (int(summary.group(1)) > 0):
        lines.append(f"{len(reports)} reports read, {summary.group(1)} hazards in the summary")
        right = False
    if within is not None and outside > 0:
        lines.append(f"{outside} of {len(reports)} reports are not of {', '.join(within)} alone")
        right = False
    if names is not None and not any(names_one_of(report, names) for report in reports):
        lines.append(f"none of {len(reports)} reports names {' or '.join(names)}")
        right = False
    return lines, right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--within", nargs="+", metavar="FILE")
    parser.add_argument("--names", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    if not arguments.within and not arguments.names:
        parser.error("nothing to judge by: --within or --names")
    text = arguments.log.read_text(errors="replace")
    lines, right = judge(text, arguments.within, arguments.names)
    print("\n".join(lines))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
