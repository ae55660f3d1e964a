#!/usr/bin/env python3
"""Writes src/ptx/wgmma_e4m3.cuh and src/ptx/wgmma_bf16.cuh: one function per shape of wgmma.

usage: tools/gen_wgmma.py [--check]
With --check nothing is written; the exit status is 1 if a file differs from what would be written.
"""

import pathlib
import sys

# tokens on N in decode, and one half of the 256 weight rows in prefill
WIDTHS = [8, 16, 24, 32, 40, 48, 56, 64, 128]
FORMATS = {"e4m3": ("e4m3.e4m3", 32, "p, 1, 1"), "bf16": ("bf16.bf16", 16, "p, 1, 1, 0, 0")}
FORMATS_RS = {"e4m3": "p, 1, 1", "bf16": "p, 1, 1, 0"}

HEAD = """#pragma once

// Written by tools/gen_wgmma.py; do not edit.
// D[64, N] = A[64, {k}] * B[{k}, N] + (accumulate ? D : 0), {name} operands, FP32 accumulators.
// With g = lane / 4, q = lane % 4: d[4j], d[4j + 1] are row 16 * warp + g, columns 8j + 2q, + 1;
// d[4j + 2], d[4j + 3] the same columns of row + 8. A: shared memory (_ss) or registers (_rs).

#include "ptx/device.cuh"

// clang-format off
namespace megamoe::ptx {{

template <int N> MEGAMOE_DEVICE void wgmma_{name}_ss(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, int accumulate);
template <int N> MEGAMOE_DEVICE void wgmma_{name}_rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b, int accumulate);
"""


def wrap(items, per_line, indent):
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return (",\n" + " " * indent).join(lines)


def text_list(count, per_line, indent):
    """The accumulators' operand list as adjacent string literals."""
    items = [f"%{i}" for i in range(count)]
    lines = [", ".join(items[i : i + per_line]) for i in range(0, count, per_line)]
    return ("\n" + " " * indent).join(
        f'"{line}{", " if i + 1 < len(lines) else ""}"' for i, line in enumerate(lines)
    )


def function(name, width, registers):
    types, k, tail = FORMATS[name]
    count = width // 2
    if registers:
        tail = FORMATS_RS[name]
        a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        b, p = count + 4, count + 5
        argument, inputs = (
            "const std::uint32_t (&a)[4]",
            '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])',
        )
    else:
        a, b, p = f"%{count}", count + 1, count + 2
        argument, inputs = "std::uint64_t a", '"l"(a)'
    kind = "rs" if registers else "ss"
    outputs = wrap([f'"+f"(d[{i}])' for i in range(count)], 8, 9)
    return f"""
template <> MEGAMOE_DEVICE void wgmma_{name}_{kind}<{width}>(float (&d)[{count}], {argument}, std::uint64_t b, int accumulate) {{
#if MEGAMOE_SM90A
  asm volatile(
      "{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{p}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{width}k{k}.f32.{types} "
      "{{"
      {text_list(count, 16, 6)}
      "}}, {a}, %{b}, {tail};\\n}}\\n"
      : {outputs}
      : {inputs}, "l"(b), "r"(accumulate));
#else
  __trap();
#endif
}}
"""


def generate(name):
    text = HEAD.format(name=name, k=FORMATS[name][1])
    for width in WIDTHS:
        text += function(name, width, False) + function(name, width, True)
    return text + "\n}  // namespace megamoe::ptx\n// clang-format on\n"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = False
    for name in FORMATS:
        path = root / "src" / "ptx" / f"wgmma_{name}.cuh"
        text = generate(name)
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not what tools/gen_wgmma.py writes")
            stale = True
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
