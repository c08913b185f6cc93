"""A start that fails leaves nothing behind that keeps the same process from the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.job_manager import JobManager
from flinkish.spark import session


def test_a_job_that_cannot_be_set_up_gives_its_directory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINKISH_PROGRESS", "sometimes")
    monkeypatch.setattr(JobManager, "_instance", JobManager())
    configuration = Configuration()
    configuration.set_string("flinkish.job.dir", str(tmp_path / "job"))
    configuration.set_string("flinkish.progress", "auto")
    monkeypatch.setattr(session, "get_session", lambda configuration, name: object())
    for _ in range(2):
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.from_collection([1, 2, 3]).print()
        with pytest.raises(ConfigurationError, match="FLINKISH_PROGRESS"):
            env.execute_async("clicks")
    assert not JobDirectory(str(tmp_path / "job")).has_living_owner()
