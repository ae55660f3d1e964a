"""The check of the main loops' disassembly sees what delays the tensor core, and only inside groups."""

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

    def test_no_products(self) -> None:
        self.assertEqual(found("FFMA R1, R1, R1, R1"), ([], {}))


if __name__ == "__main__":
    unittest.main()
