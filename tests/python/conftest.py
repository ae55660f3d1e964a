"""Every test ends: one that takes longer than this shows where it stands and ends the run. Tests outside
the folder gpu are of the CPU backend: torch shows them no GPU, whatever this machine has."""

import faulthandler
import sys

import pytest

LIMIT_S = 60


@pytest.fixture(autouse=True)
def time_limit():
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def no_gpu(request, monkeypatch):
    if request.path.parent.name != "gpu" and "torch" in sys.modules:
        monkeypatch.setattr(sys.modules["torch"].cuda, "is_available", lambda: False)
