"""tools/race_reports.py judges racecheck's reports by the lines that they name."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from race_reports import judge, reports_of

KERNEL = "void megamoe::fused_moe<megamoe::TileShape<(megamoe::Family)0, (int)16>>(T1)"


def report(write, read):
    return f"""========= Error: Race reported between Write access at {KERNEL}+0x1a0{write}
=========     and Read access at {KERNEL}+0x2b0{read} [8 hazards]
=========     and Read access at {KERNEL}+0x2c0{read} [8 hazards]
=========
"""


RING = report(" in ring.cuh:72", " in /a/src/roles/ring.cuh:80")
COPY = report(" in copy.cuh:101", " in ring.cuh:100")
SEEDED = report(" in /a/tests/device/seeded_race.cu:25", " in decode_epilogue.cuh:61")
UNLINED = report("", "")


def log(*reports):
    return "".join(reports) + f"========= RACECHECK SUMMARY: {len(reports)} hazards displayed\n"


ALLOWED = ["ring.cuh", "copy.cuh"]
SEEN = ["decode_epilogue.cuh", "seeded_race.cu"]


class RaceReportsTest(unittest.TestCase):
    def test_places(self):
        self.assertEqual(
            reports_of(log(RING, COPY)),
            [("ring.cuh:72", "ring.cuh:80"), ("copy.cuh:101", "ring.cuh:100")],
        )

    def test_within(self):
        self.assertTrue(judge(log(RING, COPY, RING), ALLOWED, None)[1])
        self.assertTrue(judge(log(), ALLOWED, None)[1])
        lines, right = judge(log(RING, SEEDED), ALLOWED, None)
        self.assertFalse(right)
        self.assertEqual(sum(line.startswith("OUTSIDE") for line in lines), 1)

    def test_reports_without_lines_are_outside(self):
        self.assertFalse(judge(log(RING, UNLINED), ALLOWED, None)[1])

    def test_names(self):
        self.assertTrue(judge(log(RING, SEEDED), None, SEEN)[1])
        self.assertFalse(judge(log(RING, COPY), None, SEEN)[1])
        self.assertFalse(judge(log(UNLINED), None, SEEN)[1])

    def test_what_was_not_read_is_no_success(self):
        self.assertFalse(judge(RING, ALLOWED, None)[1])
        self.assertFalse(judge("========= RACECHECK SUMMARY: 3 hazards\n", ALLOWED, None)[1])
        self.assertFalse(judge(RING + log(), ALLOWED, None)[1])


if __name__ == "__main__":
    unittest.main()
