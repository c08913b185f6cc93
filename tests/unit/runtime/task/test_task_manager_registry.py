"""Which task managers a worker holds."""

from __future__ import annotations

import pytest

from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.task import task_manager as module


@pytest.fixture(autouse=True)
def no_managers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_managers", {})


def _job(job_id: str) -> JobDescriptor:
    return JobDescriptor(job_id, "job", (), ())


def test_the_task_manager_of_a_version_is_kept() -> None:
    first = module.task_manager("a", "0-1", lambda: _job("a"))
    assert module.task_manager("a", "0-1", lambda: pytest.fail("loaded twice")) is first


def test_another_program_or_attempt_of_a_job_gets_tasks_of_its_own() -> None:
    first = module.task_manager("a", "0-1", lambda: _job("a"))
    assert module.task_manager("a", "0-2", lambda: _job("a")) is not first
    assert list(module._managers) == [("a", "0-2")]


def test_the_job_used_longest_ago_makes_room() -> None:
    for number in range(module.MAX_JOBS):
        module.task_manager(str(number), "0-1", lambda: _job("x"))
    module.task_manager("0", "0-1", lambda: pytest.fail("loaded twice"))
    module.task_manager("new", "0-1", lambda: _job("new"))
    assert ("0", "0-1") in module._managers
    assert ("1", "0-1") not in module._managers
    assert len(module._managers) == module.MAX_JOBS
