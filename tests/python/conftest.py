"""Every test ends: one that takes longer than this shows where it stands and ends the run."""

import faulthandler

import pytest

LIMIT_S = 60


@pytest.fixture(autouse=True)
def time_limit():
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
