"""Tests that need torch and a GPU; two_gpus marks those that need two, or with MEGAMOE_RANKS_PER_GPU=2
one that two ranks share. Without them every test is skipped, and counted as such."""

import pytest
from found_gpus import gpus, two_ranks_share


def pytest_collection_modifyitems(items):
    found = gpus()
    for item in items:
        if item.path.parent.name != "gpu":
            continue
        needed = 2 if item.get_closest_marker("two_gpus") and not two_ranks_share() else 1
        if found < needed:
            item.add_marker(
                pytest.mark.skip(
                    reason=f"needs torch and {needed} GPUs that the library has kernels for; found "
                    f"{found}"
                )
            )
