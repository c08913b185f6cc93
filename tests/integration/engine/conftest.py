"""The fault plan that all processes of this run look at, the shared Spark session's workers included."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import faults

# Workers inherit the environment of the session, which starts with the first test that needs one.
_PLAN = Path(tempfile.gettempdir()) / f"flinkish-fault-plan-{os.getpid()}.json"
os.environ.update(faults.environment(_PLAN))


@pytest.fixture
def fault_plan() -> Iterator[Path]:
    """Where to plan a fault (`tests.support.faults`); afterwards there is none."""
    faults.no_fault(_PLAN)
    yield _PLAN
    faults.no_fault(_PLAN)
