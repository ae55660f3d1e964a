"""The GPUs that the GPU tests have."""

import functools
import importlib.util

import megamoe


@functools.cache
def gpus() -> int:
    """Those that torch sees and the library's kernels run on; 0 without torch or without kernels."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    if not torch.cuda.is_available():
        return 0
    return min(torch.cuda.device_count(), len(set(megamoe._core.find_devices()[0])))


def two_ranks_share() -> bool:
    """Whether the two ranks of a test share the only GPU, as MEGAMOE_RANKS_PER_GPU=2 allows."""
    return gpus() == 1 and len(megamoe._core.find_devices()[0]) >= 2
