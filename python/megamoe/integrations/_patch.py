"""Names of other modules that are replaced, and given back."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .. import deep_gemm

_MISSING = object()

# What serving frameworks look up in the module that they import as deep_gemm.
LAYER_NAMES = tuple(
    name for name in deep_gemm.__all__ if name.endswith(("mega_moe", "_sm90", "pre_dispatch"))
)


class Patch:
    """Replaced attributes of modules. Use it as a context manager, or call `undo`."""

    def __init__(self) -> None:
        self._before: list[tuple[ModuleType, str, Any]] = []

    def set(self, module: ModuleType, name: str, value: Any) -> None:
        self._before.append((module, name, getattr(module, name, _MISSING)))
        setattr(module, name, value)

    def undo(self) -> None:
        """Puts back what was there, in reverse order; may be called again."""
        while self._before:
            module, name, value = self._before.pop()
            if value is _MISSING:
                delattr(module, name)
            else:
                setattr(module, name, value)

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *unused: object) -> None:
        self.undo()


def use_layer_functions(patch: Patch, module: ModuleType) -> None:
    """Gives `module` this library's functions of the fused layer; its others stay."""
    for name in LAYER_NAMES:
        patch.set(module, name, getattr(deep_gemm, name))
