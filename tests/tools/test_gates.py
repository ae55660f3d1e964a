"""The gates find what they are for, and leave good code alone."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/gates"))

import built
import device_rules
import headers
import includes
import links
import ordered_pairs
import sizes
import waits
import words
from tree import ROOT, Tree, allowlist, blank


class GateTest(unittest.TestCase):
    def assert_clean(self, findings: list[str]) -> None:
        self.assertEqual(findings, [])

    def assert_finds(self, findings: list[str], *parts: str) -> None:
        """One finding, which holds every part."""
        self.assertEqual(len(findings), 1, findings)
        for part in parts:
            self.assertIn(part, findings[0])


class TreeTest(GateTest):
    def test_blank_keeps_lines_and_removes_comments_and_strings(self):
        code = 'a /* { \n */ b; // }\nf("}{", \'{\', R"x(")})x", 1\'000);'
        blanked = blank(code)
        self.assertEqual(len(blanked), len(code))
        self.assertEqual(blanked.count("\n"), code.count("\n"))
        self.assertNotRegex(blanked, "[{}]")
        self.assertIn("1'000", blanked)

    def test_allowlist_needs_reasons(self):
        self.assertEqual(
            allowlist("# note\na.cpp | a table of values\n"), {"a.cpp": "a table of values"}
        )
        with self.assertRaises(ValueError):
            allowlist("a.cpp |\n")


class IncludesTest(GateTest):
    def find(self, path: str, header: str) -> list[str]:
        including = f'#pragma once\n#include "{header}"\n'
        return includes.check(Tree({path: including, f"src/{header}": "#pragma once\n"}))

    def test_a_header_that_does_not_exist_is_found(self):
        moved = Tree({"src/host/a.cpp": '#include "layout/b.hpp"\n', "src/config/b.hpp": ""})
        self.assert_finds(includes.check(moved), "a.cpp:1", "no such file")

    def test_upwards_is_found(self):
        self.assert_finds(
            self.find("src/layout/a.hpp", "protocol/b.hpp"), "a.hpp:2", "protocol/b.hpp"
        )
        self.assert_finds(self.find("src/config/a.hpp", "layout/b.hpp"), "may include")
        self.assert_finds(self.find("src/protocol/a.hpp", "cpu/b.hpp"), "may include")
        self.assert_finds(self.find("src/host/a.cpp", "tests/support.hpp"), "may include")
        self.assert_finds(self.find("include/megamoe/a.hpp", "config/b.hpp"), "may include")

    def test_downwards_is_allowed(self):
        self.assert_clean(self.find("src/protocol/a.hpp", "layout/b.hpp"))
        self.assert_clean(self.find("src/layout/a.hpp", "layout/b.hpp"))
        self.assert_clean(self.find("src/cpu/a.cpp", "protocol/b.hpp"))
        self.assert_clean(self.find("tests/host/a.cpp", "cpu/b.hpp"))
        self.assert_clean(self.find("src/config/a.cpp", "megamoe/problem.hpp"))

    def test_places_outside_the_order_are_found(self):
        self.assert_finds(self.find("src/extra/a.hpp", "config/b.hpp"), "no place")
        self.assert_finds(self.find("examples/a.cpp", "config/b.hpp"), "public headers only")
        self.assert_finds(self.find("src/host/a.cpp", "b.hpp"), "write the path")


class SizesTest(GateTest):
    BODY = "  work();\n" * 60

    def test_long_function_is_found_and_short_is_not(self):
        long = "namespace a {\nclass B {\n  int f(int x) const {\n" + self.BODY + "  }\n};\n}\n"
        self.assert_finds(
            sizes.check(Tree({"src/a.hpp": long}), {}), "src/a.hpp:3", "f has 62 lines"
        )
        short = long.replace(self.BODY, "  work();\n" * 58)
        self.assert_clean(sizes.check(Tree({"src/a.hpp": short}), {}))

    def test_forms_of_functions(self):
        heads = {
            "g": "template <class T, std::enable_if_t<(sizeof(T) > 4)>>\nauto g(T t) -> std::pair<T, T>",
            "A::A": "A::A(int x) : a_{x}, b_(x)",
            "h": "struct C* h(int x)",
            "TEST": "TEST(Suite, Name)",
            "k": "__global__ void __launch_bounds__(128) k(Args args)",
        }
        for name, head in heads.items():
            findings = sizes.check(Tree({"src/a.cpp": f"{head} {{\n{self.BODY}}}\n"}), {})
            self.assertEqual(len(findings), 1, (name, findings))

    def test_tables_and_classes_are_no_functions(self):
        table = "constexpr int kTable[] = {\n" + "  1,\n" * 100 + "};\n"
        struct = "struct S {\n" + "  int x(int) const;\n" * 100 + "};\n"
        namespace = "namespace n {\n" + "int f(int);\n" * 100 + "}\n"
        self.assert_clean(sizes.check(Tree({"src/a.cpp": table + struct + namespace}), {}))

    def test_long_file_needs_an_entry_and_an_entry_needs_a_long_file(self):
        tree = Tree({"src/a.cpp": "int x;\n" * 401})
        self.assert_finds(sizes.check(tree, {}), "src/a.cpp: 401 lines")
        self.assert_clean(sizes.check(tree, {"src/a.cpp": "one table"}))
        self.assert_finds(sizes.check(Tree({}), {"src/a.cpp": "one table"}), "no longer needed")

    def test_roles_are_shorter(self):
        tree = Tree({"src/roles/a.cuh": "int x;\n" * 301, "src/kernels/a.cuh": "int x;\n" * 301})
        self.assert_finds(sizes.check(tree, {}), "src/roles/a.cuh: 301 lines, 300 are allowed")
        self.assert_clean(sizes.check(Tree({"src/roles/a.cuh": "int x;\n" * 300}), {}))

    def test_python_function(self):
        tree = Tree({"a.py": "def f():\n" + "    g()\n" * 60})
        self.assert_finds(sizes.check(tree, {}), "a.py:1", "f has 61 lines")


class WordsTest(GateTest):
    def find(self, text: str, path: str = "src/a.cpp") -> list[str]:
        return words.check(Tree({path: text}))

    def test_findings(self):
        self.assert_finds(self.find("int x;  // TO" + "DO: later\n"), "a.cpp:1", "unfinished")
        self.assert_finds(self.find("see /ho" + "me/someone/file\n"), "absolute path")
        self.assert_finds(self.find("<<<<<<" + "< main\n"), "conflict marker")
        self.assert_finds(self.find("int x; \n"), "white space")
        self.assert_finds(self.find("  // run(x, y);\n"), "commented-out code")
        self.assert_finds(self.find("  // x.y = 3;\n"), "commented-out code")
        self.assert_finds(self.find("#if " + "0\n"), "never compiled")

    def test_good_text(self):
        self.assert_clean(
            self.find("// Waits for work/steal; see src/work/a.hpp.\nint todo_list;\n")
        )
        self.assert_clean(self.find("/// x = y;\n"))


ARCHITECTURE_QUESTIONS = {
    "__CUDA_ARCH__": "#if __CUDA_ARCH__ >= 900\n#endif\n",
    "__CUDA_ARCH_FEAT_SM90_ALL": "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#endif\n",
    "__CUDA_ARCH_SPECIFIC__": "#ifdef __CUDA_ARCH_SPECIFIC__\n#endif\n",
    "MEGAMOE_SM90A": "#if MEGAMOE_SM90A\n#endif\n",
    "NV_IF_TARGET": "NV_IF_TARGET(NV_IS_DEVICE, (f();))\n",
    "NV_IF_ELSE_TARGET": "NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return f();), (return 0;))\n",
}


class DeviceRulesTest(GateTest):
    EXCEPTIONS = ("src/kernels/fused_moe.cuh", "src/roles/device_env.cuh")

    def test_questions_about_the_architecture(self):
        for name, code in ARCHITECTURE_QUESTIONS.items():
            for path in ("src/protocol/a.hpp", "src/roles/decode_loader.cuh", "src/config/a.hpp"):
                findings = device_rules.check(Tree({path: code}))
                self.assert_finds(findings, f"{path}:1", f"{name} outside")
            for path in ("src/ptx/a.cuh", *self.EXCEPTIONS):
                self.assert_clean(device_rules.check(Tree({path: code})))

    def test_exceptions_are_needed(self):
        for path in self.EXCEPTIONS:
            self.assertTrue((ROOT / path).is_file(), path)
            self.assert_finds(device_rules.check(Tree({path: "int x;\n"})), path, "no longer")

    def test_read_only_loads(self):
        load = 'asm("ld.global.nc.v4.u32 ...");\n'
        self.assert_finds(device_rules.check(Tree({"src/roles/a.cuh": load})), "read-only")
        self.assert_finds(device_rules.check(Tree({"src/kernels/a.cuh": "__ldg(p);"})), "read-only")
        self.assert_clean(device_rules.check(Tree({"src/roles/a.cuh": "// never __ldg(p)\n"})))


class OrderedPairsTest(GateTest):
    RELEASE = "env.template store<Order::release, Scope::sys>(w, 1);"
    ACQUIRE = "env.template load<Order::acquire, Scope::sys>(w)"

    def find(self, text: str) -> list[str]:
        return ordered_pairs.check(Tree({"src/protocol/a.hpp": text}))

    def test_pair_is_clean(self):
        self.assert_clean(
            self.find(
                f"void f() {{\n  // [R:counts] read by g\n  {self.RELEASE}\n}}\n"
                f"void g() {{\n  const u64 x =\n      {self.ACQUIRE};  // [A:counts] from f\n}}\n"
            )
        )

    def test_missing_tag(self):
        self.assert_finds(self.find(f"int a;\n{self.RELEASE}\n"), "a.hpp:2", "[R:name]")
        self.assert_finds(self.find("x.load(std::memory_order_acquire);"), "[A:name]")

    def test_missing_partner(self):
        self.assert_finds(self.find(f"{self.RELEASE}  // [R:one]\n"), "[R:one] has no acquire")
        self.assert_finds(self.find(f"x = {self.ACQUIRE};  // [A:two]\n"), "[A:two] has no release")

    def test_acq_rel_needs_both_sides(self):
        both = "w.fetch_add(1, std::memory_order_acq_rel);"
        self.assert_finds(
            self.find(f"{both}  // [R:exit]\n// [A:exit]\n"), "acq_rel without a tag [A:"
        )
        self.assert_clean(self.find(f"{both}  // [R:exit] [A:exit]\n"))

    def test_tag_above_a_lambda(self):
        load = f"w(\n    // [A:one] from f\n    [&] {{\n      return {self.ACQUIRE};\n    }});\n"
        self.assert_clean(self.find(f"{self.RELEASE}  // [R:one]\n{load}"))

    def test_tag_of_another_statement_does_not_count(self):
        two = f"{self.RELEASE}  // [R:one]\n{self.RELEASE}\nx = {self.ACQUIRE};  // [A:one]\n"
        self.assert_finds(self.find(two), "a.hpp:2", "[R:name]")


class WordOrdersTest(GateTest):
    """Orders and scopes of the source against the rows of PROTOCOL.md."""

    ROW = "add release sys, after the stores; load acquire sys"

    def find(self, add: str, load: str, row: str = ROW, word: str = "w") -> list[str]:
        table = (
            f"## Words\n| word | order, scope | tests |\n|-|-|-|\n| `w` | {row} | t |\n\n## Next\n"
        )
        code = (
            f"void f() {{\n  // [R:{word}] -> g\n  env.template fetch_add<{add}>(w, 1U);\n}}\n"
            f"void g() {{\n  // [A:{word}] from f\n  x = env.template load<{load}>(w);\n}}\n"
        )
        return ordered_pairs.check(Tree({"PROTOCOL.md": table, "src/protocol/a.hpp": code}))

    RIGHT = ("Order::release, Scope::sys", "Order::acquire, Scope::sys")

    def test_as_documented(self):
        self.assert_clean(self.find(*self.RIGHT))

    def test_wrong_scope(self):
        found = self.find("Order::release, Scope::gpu", self.RIGHT[1])
        self.assertEqual(len(found), 2, found)
        self.assertIn("a.hpp:3: add release gpu of `w`", found[0])
        self.assertIn("load acquire sys", found[0])
        self.assertIn("no tagged add release sys", found[1])

    def test_wrong_order(self):
        found = self.find(self.RIGHT[0], "Order::relaxed, Scope::sys")
        self.assertEqual(len(found), 2, found)
        self.assertIn("a.hpp:7: load relaxed sys of `w`", found[0])
        self.assertIn("no tagged load acquire sys", found[1])

    def test_wrong_row(self):
        found = self.find(*self.RIGHT, row="add release gpu; load acquire sys")
        self.assertIn("add release sys of `w`", found[0])
        self.assert_finds(
            self.find(*self.RIGHT, row=self.ROW + "; sometimes more"), "sometimes more"
        )

    def test_name_that_is_no_word(self):
        found = self.find(*self.RIGHT, word="v")
        self.assertIn("[v] is no word of PROTOCOL.md", found[0])

    def test_words_of_the_repository(self):
        findings: list[str] = []
        words = ordered_pairs.documented((ROOT / "PROTOCOL.md").read_text(), findings)
        self.assert_clean(findings)
        self.assertIn(("add", "release", "sys"), words["arrived"])
        self.assertGreater(len(words), 15)


class WaitsTest(GateTest):
    def find(self, text: str) -> list[str]:
        return waits.check(Tree({"src/protocol/a.hpp": text}))

    def test_findings(self):
        self.assert_finds(self.find("while (true) {\n  work();\n}\n"), "without an end")
        self.assert_finds(self.find("while (w.load(o) != 3) {\n}\n"), "without deadline")
        self.assert_finds(
            self.find("for (;;) {\n  if (env.load<O>(w) == 1) break;\n}\n"), "deadline"
        )
        self.assert_finds(self.find("do {\n  x = w.load(o);\n} while (x != 3);\n"), "deadline")

    def test_bounded_loops(self):
        self.assert_clean(
            self.find("while (w.load(o) != 3) {\n  if (now() > deadline) return;\n}\n")
        )
        self.assert_clean(
            self.find("while (n > 0) {\n  --n;\n}\nfor (;;) {\n  if (f()) return;\n}\n")
        )


class LinksTest(GateTest):
    def test_links(self):
        files = {
            "README.md": "# A b\n[ok](docs/a.md#c-d), [ok](#a-b), [ok](docs), [web](https://x.y/z)\n",
            "docs/a.md": "# C, d\n```sh\n[x](nothing.md)\n```\n`[y](nothing.md)`\n",
        }
        self.assert_clean(links.check(Tree(files)))
        files["docs/a.md"] = "# E\n"
        self.assert_finds(links.check(Tree(files)), "README.md:2", "no heading #c-d")
        self.assert_finds(links.check(Tree({"a.md": "\n[x](b.md)\n"})), "a.md:2", "no file b.md")


class BuiltTest(GateTest):
    def test_unbuilt_sources_are_found(self):
        files = {"src/a/CMakeLists.txt": "target_sources(m PRIVATE b.cpp)\n", "src/a/b.cpp": ""}
        self.assert_clean(built.check(Tree(files)))
        loop = "foreach(part one two)\n  add(NAME x_${part} SOURCES x_${part}.cpp)\nendforeach()\n"
        self.assert_clean(built.check(Tree({"a/CMakeLists.txt": loop, "a/x_one.cpp": ""})))
        self.assert_finds(built.check(Tree({"a/CMakeLists.txt": loop, "a/x_six.cpp": ""})), "x_six")
        files["src/a/c.cpp"] = ""
        self.assert_finds(built.check(Tree(files)), "src/a/c.cpp")


class HeadersTest(GateTest):
    def check(self, text: str, source: str = "") -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "src/host/a.hpp"
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            tree = Tree({"src/host/a.hpp": text, "src/host/a.cpp": source})
            return headers.check(tree, root=Path(folder), cache=None)

    def test_header_that_leans_on_another_is_found(self):
        self.assert_finds(self.check("#pragma once\nstd::string f();\n"), "src/host/a.hpp alone")
        self.assert_finds(self.check("struct A {};\n"), "src/host/a.hpp alone")

    def test_header_proven_by_its_source_is_left_to_the_build(self):
        bad = "#pragma once\nstd::string f();\n"
        self.assert_clean(self.check(bad, '#include "host/a.hpp"\n'))
        late = '#include <string>\n#include "host/a.hpp"\n'
        self.assert_finds(self.check(bad, late), "src/host/a.hpp alone")

    def test_whole_header(self):
        self.assert_clean(self.check("#pragma once\n#include <string>\nstd::string f();\n"))


if __name__ == "__main__":
    unittest.main()
