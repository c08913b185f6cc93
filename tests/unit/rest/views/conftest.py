"""Jobs that the tests of the views share."""

from __future__ import annotations

import pytest

from flinkish.jobmanager.job.description import JobDescription
from tests.support import described_jobs


@pytest.fixture(scope="session")
def running() -> JobDescription:
    return described_jobs.running_job()


@pytest.fixture(scope="session")
def restarted() -> JobDescription:
    return described_jobs.restarted_job()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> JobDescription:
    """With checkpoints."""
    return described_jobs.checkpointed_job(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def failed() -> JobDescription:
    return described_jobs.failed_job()


@pytest.fixture
def extreme() -> JobDescription:
    return described_jobs.extreme_job()


@pytest.fixture
def beginning() -> JobDescription:
    return described_jobs.beginning_job()
