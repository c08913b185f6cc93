"""What all tests share. Nothing here starts a server or Spark: unit tests stay fast."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.support.costs import sort_items
from tests.support.processes import python_path
from tests.support.profiles import load_profile

# Child processes of any test (workers, driver scripts) import this checkout, installed or not.
os.environ["PYTHONPATH"] = python_path()

# Tests write thousands of small files that are to survive a loss of power: in memory, where there is room for them,
# nothing waits for a disk.
_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK):
    _system = os.statvfs(_MEMORY)
    if _system.f_bavail * _system.f_frsize > _ROOM and not _system.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Tests say which records an epoch reads: a machine that is slow must not make other epochs than one that is fast. Those
# of the sizes of epochs set a target themselves.
os.environ.setdefault("FLINKISH_CONF", str(Path(__file__).parent / "support" / "flinkish.yaml"))

load_profile()

# What pytest has found before it leaves out what is not to run (tests/unit/support/test_nightly.py).
COLLECTED = pytest.StashKey[list[pytest.Item]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files come first."""
    sort_items(items)
    config.stash[COLLECTED] = list(items)


def pytest_collection_finish() -> None:
    """What was imported and found stays: the collector need not look at it all again in the midst of tests."""
    gc.freeze()
