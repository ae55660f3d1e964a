"""The check of the main loops' disassembly sees what delays the tensor core, and only inside groups."""

import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/gates"))

import sass_main_loop

PRODUCT = "QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR8], R24"


def dump(*instructions: str) -> list[str]:
    """Lines as the disassembler writes them, for one function."""
    lines = ["\t\tFunction : kernel"]
    return lines + [f"        /*{16 * i:04x}*/    {text} ;" for i, text in enumerate(instructions)]


def found(*instructions: str) -> tuple[list[int], dict[str, int]]:
    [(_, opcodes)] = sass_main_loop.functions(dump(*instructions))
    groups, counts = sass_main_loop.inspect(opcodes)
    return groups, dict(counts)


class SassMainLoop(unittest.TestCase):
    def test_clean_group(self) -> None:
        self.assertEqual(
            found(
                "LDS R1, [R2]",
                PRODUCT,
                "UIADD3.64 UR8, UR8, 0x2, URZ",
                PRODUCT,
                "FFMA R1, R1, R1, R1",
            ),
            ([2], {}),
        )

    def test_load_between_products(self) -> None:
        self.assertEqual(found(PRODUCT, "@!P0 LDS R1, [R2]", PRODUCT), ([2], {"LDS": 1}))

    def test_register_move_between_products(self) -> None:
        self.assertEqual(found(PRODUCT, "R2UR UR4, R3", PRODUCT), ([2], {"R2UR": 1}))

    def test_a_wait_ends_a_group(self) -> None:
        self.assertEqual(
            found(PRODUCT, "WARPGROUP.DEPBAR.LE gsb0, 0x0", "FFMA R1, R1, R1, R1", PRODUCT),
            ([1, 1], {}),
        )

    def test_products_of_scales_are_counted(self) -> None:
        self.assertEqual(
            found(PRODUCT, "FMUL R1, R2.reuse, R3", "FMUL R1, R2, R3", PRODUCT), ([2], {"FMUL": 2})
        )

    def run_gate(self, text: list[str], *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, sass_main_loop.__file__, *arguments],
            input="\n".join(text),
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout

    def test_products_of_scales_have_a_limit(self) -> None:
        four = dump(PRODUCT, *["FMUL R1, R2, R3"] * 4, PRODUCT)
        five = dump(PRODUCT, *["FMUL R1, R2, R3"] * 5, PRODUCT)
        self.assertEqual(self.run_gate(four)[0], 0)
        self.assertEqual(self.run_gate(five)[0], 1)
        self.assertEqual(self.run_gate(five, "--fmul", "5")[0], 0)

    def test_all_expected_functions_and_no_others_must_be_there(self) -> None:
        one = dump(PRODUCT, PRODUCT)
        other = [line.replace("kernel", "other_kernel") for line in one]
        idle = [line.replace("kernel", "idle_kernel") for line in dump("FFMA R1, R1, R1, R1")]
        self.assertEqual(self.run_gate(one + idle, "--expect", "kernel")[0], 0)
        for text, parts, says in [
            (one, ["kernel", "other"], "0 functions with matrix instructions named other"),
            (one + other, ["kernel"], "2 functions with matrix instructions named kernel"),
            (one + other, ["other"], "nobody expects matrix instructions in kernel"),
            (one + idle, ["kernel", "idle"], "0 functions with matrix instructions named idle"),
        ]:
            status, printed = self.run_gate(text, "--expect", *parts)
            self.assertEqual(status, 1, parts)
            self.assertIn(says, printed)

    def test_no_products(self) -> None:
        self.assertEqual(found("FFMA R1, R1, R1, R1"), ([], {}))


if __name__ == "__main__":
    unittest.main()
