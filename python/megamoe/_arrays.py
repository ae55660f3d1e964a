"""Arrays of any framework, without importing one."""

import sys
from typing import Any, Protocol


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


def current_stream(device: int) -> int:
    """torch's current stream on this GPU, else the default stream."""
    torch = sys.modules.get("torch")
    if device < 0 or torch is None or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


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
