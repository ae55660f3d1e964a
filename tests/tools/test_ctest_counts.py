"""tools/ctest_counts.py counts only tests that ran and passed as passed."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from ctest_counts import counts

SKIPPED = """
50% tests passed, 2 tests failed out of 4

The following tests did not run:
\t  2 - b (Skipped)
\t  3 - c (Disabled)

The following tests FAILED:
\t  4 - d (Failed)
\t  5 - e (Not Run)
"""


class CountsTest(unittest.TestCase):
    def test_all_passed(self):
        self.assertEqual(counts("100% tests passed, 0 tests failed out of 12\n"), (12, 0, 0))
        self.assertEqual(counts("0% tests passed, 1 test failed out of 1\n"), (0, 1, 0))

    def test_skipped_and_disabled(self):
        self.assertEqual(counts(SKIPPED), (1, 2, 2))

    def test_no_summary(self):
        with self.assertRaises(ValueError):
            counts("No tests were found!!!\n")


if __name__ == "__main__":
    unittest.main()
