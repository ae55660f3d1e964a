"""Arrays of any framework, without importing one."""

import sys
from typing import Any, Protocol

import numpy as np

from ._error import Error


class Array(Protocol):
    """What every argument called an array is: NumPy, torch, CuPy, JAX, or any other DLPack type."""

    @property
    def shape(self) -> Any: ...


def dtype_name(array: Any) -> str:
    """Such as 'uint8', 'bfloat16', 'float8_e4m3fn'."""
    return str(getattr(array, "dtype", "")).rsplit(".", 1)[-1]


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def raw(array: Any) -> Any:
    """`array` as the binding takes it: types that DLPack or NumPy lack become integers of the same
    size, and tensors with gradients are detached. Memory is shared."""
    if array is None:
        return None
    name = dtype_name(array)
    if is_torch(array):
        if array.requires_grad:
            array = array.detach()
        return array.view(sys.modules["torch"].uint8) if name.startswith("float8") else array
    if name.startswith("float8"):
        return array.view("uint8")
    if name == "bfloat16" and type(array).__module__.startswith("numpy"):
        return array.view("uint16")
    return array


def plain_address(array: Any, dtype: str, dimensions: int, width: int, device: int) -> int | None:
    """The address of a torch tensor that a call can use without any further look: of this type, with
    so many dimensions, the last of them `width`, contiguous, at the rank's place. None for others."""
    if not is_torch(array):
        return None
    shape = array.shape
    if (
        array.dtype is getattr(sys.modules["torch"], dtype)
        and len(shape) == dimensions
        and shape[-1] == width
        and array.is_contiguous()
        and not array.requires_grad
        and (array.is_cuda if device >= 0 else array.is_cpu)
        and array.get_device() == device
    ):
        return array.data_ptr()
    return None


def current_stream(device: int) -> int:
    """torch's current stream on this GPU, else the default stream."""
    torch = sys.modules.get("torch")
    if device < 0 or torch is None or not torch.cuda.is_initialized():
        return 0
    # A Stream object takes longer than the rest of a call.
    return int(torch._C._cuda_getCurrentRawStream(device))


def stream_handle(stream: Any, device: int) -> int:
    """A cudaStream_t as an integer, from None (the current one), an integer, or a framework's
    stream."""
    if stream is None:
        return current_stream(device)
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


def to_framework(view: Any, device: int) -> Any:
    """A view of the library's memory: NumPy for host memory, on a GPU what the process uses."""
    if view is None or device < 0:
        return view
    for framework in ("torch", "cupy"):
        if framework in sys.modules:
            return sys.modules[framework].from_dlpack(view)
    return view


def padded(size: int) -> int:
    """The least multiple of 128 that is not below a model's size."""
    return -(-size // 128) * 128


def resized(array: Any, axis: int, size: int, repeat: bool = False) -> Any:
    """A copy with `size` elements along `axis`: behind the old ones zeros, or the last one again. The
    array itself where it has so many."""
    old = int(array.shape[axis])
    if old == size:
        return array
    shape = list(array.shape)
    shape[axis] = size
    if is_torch(array):
        out = array.new_zeros(shape)
    elif isinstance(array, np.ndarray):
        out = np.zeros(shape, array.dtype)
    else:
        raise Error(
            "invalid_argument",
            f"{type(array).__name__} of {old} channels needs padding to {size}; this is done for "
            "NumPy and torch",
        )
    head: list[Any] = [slice(None)] * len(shape)
    tail = list(head)
    head[axis], tail[axis] = slice(0, old), slice(old, size)
    out[tuple(head)] = array
    if repeat and old > 0:
        last = list(tail)
        last[axis] = slice(old - 1, old)
        out[tuple(tail)] = array[tuple(last)]
    return out


def pad_columns(array: Any, columns: int) -> Any:
    """Rows of a model's size with zeros behind them where `columns` is that size padded."""
    shape = tuple(getattr(array, "shape", ()))
    if len(shape) != 2 or shape[1] >= columns or padded(int(shape[1])) != columns:
        return array
    return resized(array, 1, columns)


def widened(y: Any, columns: int) -> tuple[Any, Any]:
    """(the array that a call writes, what must be copied back into or None). y of a model's size is
    written in place where its rows have the stride `columns` and memory behind them."""
    shape = tuple(getattr(y, "shape", ()))
    if len(shape) != 2 or shape[1] >= columns or padded(int(shape[1])) != columns:
        return y, None
    if is_torch(y):
        if y.stride() == (columns, 1):
            room = y.untyped_storage().nbytes() // y.element_size() - y.storage_offset()
            if room >= shape[0] * columns:
                return y.as_strided((shape[0], columns), (columns, 1)), None
        return y.new_empty((shape[0], columns)), y
    base = getattr(y, "base", None)
    if isinstance(base, np.ndarray) and base.shape == (shape[0], columns):
        same = base.dtype == y.dtype and base.flags.c_contiguous
        if same and base.ctypes.data == y.ctypes.data and y.strides == base.strides:
            return base, None
    return np.empty((shape[0], columns), y.dtype), y
