"""What the tests of starts share."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.launch import spark_command
from flinkish.launch.packages import own_archive


@pytest.fixture(scope="session")
def _archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_archive(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def one_archive(_archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All installations of a test have one archive of flinkish: each would zip all modules for itself."""
    monkeypatch.setattr(spark_command, "own_archive", lambda cache: _archive)
