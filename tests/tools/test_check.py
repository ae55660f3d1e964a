"""tools/check.sh counts, stops, ends what runs too long, and leaves no process behind."""

import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class CheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/check.sh", self.root / "tools/check.sh")

    def stage(self, name: str, body: str) -> None:
        path = self.root / f"tools/stage_{name}.sh"
        path.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def run_check(self, *stages: str, limit: str = "20") -> tuple[int, list[str]]:
        result = subprocess.run(
            ["bash", str(self.root / "tools/check.sh"), *stages],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "MEGAMOE_STAGE_LIMIT": limit},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return result.returncode, result.stdout.splitlines()

    def gone(self, pid_file: Path) -> bool:
        pid = pid_file.read_text().strip()
        for _ in range(50):
            stat = Path(f"/proc/{pid}/stat")
            if not stat.exists() or stat.read_text().split(")")[1].split()[0] == "Z":
                return True
            time.sleep(0.1)
        return False

    def test_counts_are_added_up(self):
        self.stage("gpu", "echo counts: 7 0 0")
        self.stage("multi", "true")
        status, lines = self.run_check("gpu", "multi")
        self.assertEqual((status, lines[-1]), (0, "8 passed, 0 failed"))

    def test_skipped_is_not_passed(self):
        self.stage("gpu", "echo counts: 0 0 3")
        status, lines = self.run_check("gpu")
        self.assertEqual((status, lines[-1]), (1, "0 passed, 0 failed, 3 skipped"))

    def test_failure_stops_the_run_and_shows_the_log(self):
        self.stage("gpu", "echo counts: 2 1 0; echo the reason; exit 1")
        self.stage("multi", "touch ran")
        status, lines = self.run_check("gpu", "multi")
        self.assertEqual((status, lines[-1]), (1, "2 passed, 1 failed"))
        self.assertIn("the reason", lines)
        self.assertFalse((self.root / "ran").exists())

    def test_failure_without_failed_tests_counts_as_one(self):
        self.stage("gpu", "echo counts: 2 0 0; exit 3")
        self.assertEqual(self.run_check("gpu")[1][-1], "2 passed, 1 failed")

    def test_time_limit_ends_all_processes(self):
        self.stage("gpu", "sleep 300 & echo $! >child; trap '' TERM; sleep 300; sleep 300")
        started = time.monotonic()
        status, lines = self.run_check("gpu", limit="1")
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed"))
        self.assertLess(time.monotonic() - started, 30)
        self.assertTrue(any("TIMED OUT" in line for line in lines), lines)
        self.assertTrue(self.gone(self.root / "child"))

    def test_what_a_passing_stage_left_running_is_ended(self):
        self.stage("gpu", "sleep 300 >/dev/null 2>&1 & echo $! >child")
        self.assertEqual(self.run_check("gpu")[0], 0)
        self.assertTrue(self.gone(self.root / "child"))

    def test_unknown_and_absent_stages(self):
        self.assertEqual(self.run_check("nonsense")[0], 2)
        status, lines = self.run_check("ladder")
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed"))
        self.assertIn("ladder: not run (no tools/stage_ladder.sh)", lines)


if __name__ == "__main__":
    unittest.main()
