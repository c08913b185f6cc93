"""A start that fails leaves nothing behind that keeps the same process from the next one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.client import JobManager
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.spark_run import prepare_directory
from flinkish.spark import session


class SessionOf:
    """As much of a session as is asked for its master and takes settings. ``master`` None: it may not be asked."""

    version = "4.2.0"

    def __init__(self, master: str | None) -> None:
        self._master = master
        self.conf = self.sparkContext = self

    def getConf(self) -> dict[str, str]:
        return {}

    def get(self, key: str, default: str = "") -> str:
        if self._master is None:
            raise RuntimeError(f"[CONFIG_NOT_AVAILABLE] {key}")
        return self._master

    def set(self, key: str, value: str) -> None:
        pass


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443"])
def test_on_a_cluster_a_job_without_a_directory_is_refused(master: str) -> None:
    session: Any = SessionOf(master)
    with pytest.raises(ConfigurationError, match=f"{master}.*expected flinkish.job.dir, a directory that all machines"):
        prepare_directory(session, driver_settings(Configuration()), "shop")


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]", None])
def test_on_one_machine_a_job_without_a_directory_has_a_temporary_one(master: str | None) -> None:
    session: Any = SessionOf(master)
    directory, temporary = prepare_directory(session, driver_settings(Configuration()), "shop")
    assert temporary
    directory.release()
    shutil.rmtree(directory.path)


def test_a_job_that_cannot_be_set_up_gives_its_directory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINKISH_PROGRESS", "sometimes")
    manager = JobManager()
    monkeypatch.setattr(JobManager, "get", lambda: manager)
    configuration = Configuration()
    configuration.set_string("flinkish.job.dir", str(tmp_path / "job"))
    configuration.set_string("flinkish.progress", "auto")
    monkeypatch.setattr(session, "get_session", lambda configuration, name, short_lived: SessionOf("local[1]"))
    for _ in range(2):
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.from_collection([1, 2, 3]).print()
        with pytest.raises(ConfigurationError, match="FLINKISH_PROGRESS"):
            env.execute_async("clicks")
    assert not JobDirectory(str(tmp_path / "job")).has_living_owner()
