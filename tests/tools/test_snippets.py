"""tests/docs/run_snippets.py fails for documents whose commands, code or output are wrong."""

import contextlib
import io
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))

import run_snippets


def block(info: str, text: str) -> str:
    return f"```{info}\n{text}\n```\n"


class SnippetsTest(unittest.TestCase):
    def check(self, document: str) -> tuple[int, int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            passed, failed = run_snippets.check_file("a.md", document, ROOT / "build/none")
        return passed, failed, printed.getvalue()

    def test_shell(self):
        self.assertEqual(self.check(block("sh", "test -f LICENSE"))[:2], (1, 0))
        self.assertEqual(self.check(block("sh", "false\ntrue"))[:2], (0, 1))
        self.assertEqual(self.check(block("sh", 'echo "$undefined_name"'))[:2], (0, 1))

    def test_time_limit_ends_background_processes(self):
        passed, failed, printed = self.check(block("sh limit=1", "sleep 30 & sleep 30"))
        self.assertEqual((passed, failed), (0, 1))
        self.assertIn("took more than 1 s", printed)

    def test_command_may_not_litter(self):
        path = ROOT / "snippet_test.tmp"
        try:
            printed = self.check(block("sh", f"touch {path.name}"))[2]
        finally:
            path.unlink(missing_ok=True)
        self.assertIn("changed files outside build/: ?? snippet_test.tmp", printed)

    def test_not_run_needs_a_reason(self):
        self.assertEqual(self.check(block("sh not-run: installs packages", "false"))[:2], (0, 0))
        self.assertEqual(self.check(block("sh not-run", "false"))[:2], (0, 1))

    def test_output(self):
        command = block("sh", "printf 'a\\nb 17\\nc\\n'")
        self.assertEqual(self.check(command + block("text output", "a\nb 17\nc"))[:2], (2, 0))
        self.assertEqual(self.check(command + block("text output", "a\n...\nc"))[:2], (2, 0))
        self.assertEqual(self.check(command + block("text output", "a\nb 18\nc"))[:2], (1, 1))
        self.assertEqual(self.check(command + block("text output", "a\n..."))[:2], (2, 0))
        self.assertEqual(self.check(block("text output", "a"))[:2], (0, 1))

    def test_program_without_the_library_fails(self):
        self.assertEqual(self.check(block("cpp", "int main() {}"))[:2], (0, 1))

    def test_other_languages_are_text(self):
        self.assertEqual(self.check(block("json", "{}") + block("", "x"))[:2], (0, 0))


if __name__ == "__main__":
    unittest.main()
