"""tools/tidy.py finds what .clang-tidy forbids, and keeps apart sources that do not fit together."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tidy

FLAGS = ["-std=c++20"]


class TidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        (self.root / "src").mkdir()
        (self.root / "work").mkdir()
        shutil.copy(ROOT / ".clang-tidy", self.root)
        for name, value in (("ROOT", self.root), ("WORK", self.root / "work")):
            patch = mock.patch.object(tidy, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def source(self, name: str, text: str) -> Path:
        path = self.root / "src" / name
        path.write_text(text, encoding="utf-8")
        return path

    def findings(self, *files: Path) -> str:
        return "".join(answer or "" for answer in tidy.look_at(list(files), FLAGS, b""))

    def test_clean_sources_share_a_unit(self):
        a = self.source("a.cpp", "int first() { return 1; }\n")
        b = self.source("b.cpp", "int second() { return 2; }\n")
        self.assertEqual(tidy.look_at([a, b], FLAGS, b""), [None])

    def test_finding_in_a_shared_unit_names_its_file(self):
        a = self.source("a.cpp", "int first() { return 1; }\n")
        b = self.source("b.cpp", "int WrongName() { return 2; }\n")
        found = self.findings(a, b)
        self.assertIn("src/b.cpp:1:5: error: invalid case style for function 'WrongName'", found)

    def test_sources_with_the_same_local_name_are_kept_apart(self):
        text = "namespace {\nint local() { return 1; }\n}  // namespace\nint NAME() { return local(); }\n"
        a = self.source("a.cpp", text.replace("NAME", "first"))
        b = self.source("b.cpp", text.replace("NAME", "second"))
        self.assertEqual(tidy.look_at([a, b], FLAGS, b""), [None, None])

    def test_a_source_that_does_not_compile_is_a_finding(self):
        a = self.source("a.cpp", "int first() { return 1; }\n")
        b = self.source("b.cpp", "int second() { return unknown; }\n")
        good, bad = tidy.look_at([a, b], FLAGS, b"")
        self.assertIsNone(good)
        self.assertIn("src/b.cpp:1:23: error: use of undeclared identifier 'unknown'", bad)

    def test_a_unit_that_failed_is_looked_at_again_and_one_that_passed_only_when_changed(self):
        bad = self.source("a.cpp", "int WrongName() { return 1; }\n")
        self.assertNotEqual(self.findings(bad), "")
        self.assertNotEqual(self.findings(bad), "")
        good = self.source("a.cpp", "int right_name() { return 1; }\n")
        self.assertEqual(self.findings(good), "")
        with mock.patch.object(tidy, "TIDY", "false"):
            self.assertEqual(self.findings(good), "")
        self.source("a.cpp", "int WrongAgain() { return 1; }\n")
        self.assertNotEqual(self.findings(good), "")

    def test_flags_come_from_behind_the_compiler(self):
        source = self.source("a.cpp", "")
        command = (
            f"/usr/bin/cmake -E env X=1 /usr/bin/ccache /usr/bin/c++ -DA=1 -O3 -o a.o -c {source}"
        )
        database = [{"file": str(source), "command": command, "directory": str(self.root)}]
        (self.root / "compile_commands.json").write_text(json.dumps(database), encoding="utf-8")
        self.assertEqual(tidy.host_sources(self.root), {source: ["-DA=1", "-O3"]})

    def test_sources_that_cmake_compiles_together_are_found(self):
        a, b = self.source("a.cpp", ""), self.source("b.cpp", "")
        together = self.root / "unity_0_cxx.cxx"
        together.write_text(f'/* CMake */\n\n#include "{a}"\n#include "{b}"\n', encoding="utf-8")
        command = f"/usr/bin/c++ -O3 -o a.o -c {together}"
        database = [{"file": str(together), "command": command, "directory": str(self.root)}]
        (self.root / "compile_commands.json").write_text(json.dumps(database), encoding="utf-8")
        self.assertEqual(tidy.host_sources(self.root), {a: ["-O3"], b: ["-O3"]})


if __name__ == "__main__":
    unittest.main()
