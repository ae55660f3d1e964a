"""Tests that need torch and a GPU; two_gpus marks those that need two. Without them every test is
skipped, and counted as such."""

import importlib.util

import pytest


def gpus() -> int:
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pytest_collection_modifyitems(items):
    found = gpus()
    for item in items:
        if item.path.parent.name != "gpu":
            continue
        needed = 2 if item.get_closest_marker("two_gpus") else 1
        if found < needed:
            item.add_marker(
                pytest.mark.skip(reason=f"needs torch and {needed} GPUs; found {found}")
            )
