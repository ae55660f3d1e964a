"""What the calls of this module share: the GPU's generation, the SM count, the names of arguments."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import Activation, Error, _core

PRECISIONS = {"fp8xfp4": "fp8", "fp8xfp8": "fp8", "bf16xbf16": "bf16"}
BLOCK_RECIPES = ((1, 128, 128), (128, 128, 128))
FP4_RECIPE = (1, 1, 32)
TOKEN_ALIGNMENT = 128

_num_sms: int | None = None
_reserved_sms: int | None = None


def refuse(message: str, code: str = "invalid_argument") -> Error:
    return Error(code, message)


def cuda() -> Any:
    """torch.cuda where it can be used, else None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def device_major() -> int:
    """The current GPU's major compute capability; 9 without one, where the CPU backend does what
    Hopper does."""
    found = cuda()
    return 9 if found is None else int(found.get_device_capability()[0])


def _original() -> Any:
    module = sys.modules.get("deep_gemm")
    if module is None or module is sys.modules.get(__package__):
        return None
    return module if hasattr(module, "get_num_sms") else None


def get_num_sms() -> int:
    """The SMs that calls use at most: what set_num_sms said, else the original module's count where
    it is loaded, else the GPU's; 0 without a GPU."""
    if _num_sms is not None:
        return _num_sms
    if (original := _original()) is not None:
        return int(original.get_num_sms())
    found = cuda()
    if found is None:
        return 0
    return int(found.get_device_properties(found.current_device()).multi_processor_count)


def set_num_sms(num_sms: int) -> None:
    """Sets the count for later calls of this process; 0: the default again."""
    global _num_sms
    if num_sms < 0:
        raise refuse(f"num_sms = {num_sms} is negative")
    _num_sms = int(num_sms) or None


@contextlib.contextmanager
def num_sms(count: int) -> Iterator[None]:
    """set_num_sms for a block of code; what was set before is set again, after exceptions too."""
    global _num_sms
    before = _num_sms
    set_num_sms(count)
    try:
        yield
    finally:
        _num_sms = before


def get_reserved_sms() -> int | None:
    """SMs that calls leave free; None: as MEGAMOE_RESERVED_SMS, else
    SGLANG_OPT_DEEPGEMM_MEGA_MOE_RESERVED_SMS, said when the buffer was made, else 0 on Hopper and 2 on
    later GPUs."""
    return _reserved_sms


def set_reserved_sms(count: int | None) -> None:
    """Sets it for later calls of this process; sizes of buffers do not depend on it."""
    global _reserved_sms
    if count is not None and count < 0:
        raise refuse(f"reserved_sms = {count} is negative")
    _reserved_sms = count


def requested_sms() -> int:
    """num_sms of a launch; 0 where nothing was set."""
    return get_num_sms() if _num_sms is not None or _original() is not None else 0


@dataclass(frozen=True)
class LaunchPolicy:
    """How many SMs a buffer's calls use: on Hopper what was set; on later GPUs at most the GPU's less
    those that are reserved, and an even number."""

    major: int  #: compute capability
    physical: int  #: SMs of the GPU
    reserved: int | None = None  #: those that the environment wants free

    def count(self) -> int:
        reserve = self.reserved if _reserved_sms is None else _reserved_sms
        current = requested_sms() or self.physical
        return _core.launch_sms(10 * self.major, self.physical, current, reserve)


def launch_policy() -> LaunchPolicy:
    """That of the current GPU and the environment."""
    reserved = _core.environment_reserved_sms()
    found = cuda()
    if found is None:
        return LaunchPolicy(9, 0, reserved)
    properties = found.get_device_properties(found.current_device())
    return LaunchPolicy(device_major(), int(properties.multi_processor_count), reserved)


_NO_SCOPE = contextlib.nullcontext()


def launch_scope(policy: LaunchPolicy) -> contextlib.AbstractContextManager[None]:
    """The SM count of one launch, taken back after it, also on an exception."""
    return _NO_SCOPE if policy.major < 10 else num_sms(policy.count())


def precision_of(mma_type: str) -> str:
    if mma_type not in PRECISIONS:
        raise refuse(f"mma_type = {mma_type!r}; known: {', '.join(PRECISIONS)}")
    if mma_type == "fp8xfp4" and device_major() >= 10:
        return "mxfp8_mxfp4"
    return PRECISIONS[mma_type]


def check_recipe(recipe: Any, known: tuple[tuple[int, int, int], ...]) -> None:
    if tuple(recipe) not in known:
        every = (*BLOCK_RECIPES, FP4_RECIPE)
        raise refuse(
            f"recipe = {tuple(recipe)}; known: {', '.join(map(str, every))}, here: "
            f"{', '.join(map(str, known))}"
        )


@functools.lru_cache(maxsize=256)
def activation_of(
    name: str,
    alpha: float | None = 1.0,
    up_bias: float | None = 0.0,
    clamp: float | None = None,
    beta: float | None = None,
    linear_beta: float | None = None,
) -> Activation:
    """The activation that a call names; None stands for a parameter's neutral value."""
    kind = name.replace("_", "-")
    values: dict[str, float] = {} if clamp is None else {"clamp": clamp}
    alpha = 1.0 if alpha is None else alpha
    up_bias = 0.0 if up_bias is None else up_bias
    if kind == "situ":
        values |= {} if beta is None else {"beta": beta}
        return Activation(
            kind, **values, **({} if linear_beta is None else {"linear_beta": linear_beta})
        )
    if kind == "swiglu" and (alpha, up_bias) != (1.0, 0.0):
        kind = "swiglu-oai"
    if kind == "swiglu-oai":
        values |= {"alpha": alpha, "up_bias": up_bias}
    elif kind != "swiglu":
        raise refuse(f"activation = {name!r}; known: swiglu, swiglu-oai, situ")
    if beta is not None or linear_beta is not None:
        raise refuse(
            f"activation_beta = {beta}, activation_linear_beta = {linear_beta} with activation = "
            f"{name!r}; they belong to situ"
        )
    return Activation(kind, **values)
