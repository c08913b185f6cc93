"""The fault plan that all processes of this run look at, and a folder with empty sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.engine.conftest import fault_plan
from tests.integration.exactness.outputs import make_table

__all__ = ["fault_plan"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where one trial keeps everything."""
    make_table(tmp_path)
    return tmp_path
