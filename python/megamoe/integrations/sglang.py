"""SGLang: `--moe-a2a-backend megamoe` imports a module deep_gemm and calls its fused layer.

from megamoe.integrations import sglang
sglang.install()          # before the server loads its model
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

from .. import deep_gemm
from ._patch import Patch, use_layer_functions


def install() -> Patch:
    """Makes `import deep_gemm` give this library's fused layer. Where DeepGEMM is installed, its
    other functions stay, and its SM count is honoured; else the module is megamoe.deep_gemm.
    `undo()` of what it returns takes it back; buffers made until then keep working."""
    if "deep_gemm" in sys.modules or importlib.util.find_spec("deep_gemm") is not None:
        patch = Patch()
        use_layer_functions(patch, importlib.import_module("deep_gemm"))
        return patch
    return _Alias()


class _Alias(Patch):
    """megamoe.deep_gemm under the name deep_gemm."""

    def __init__(self) -> None:
        super().__init__()
        sys.modules["deep_gemm"] = deep_gemm

    def undo(self) -> None:
        if sys.modules.get("deep_gemm") is deep_gemm:
            del sys.modules["deep_gemm"]
