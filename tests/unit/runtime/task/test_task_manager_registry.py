"""Which task managers a worker holds."""

from __future__ import annotations

import pytest

from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.task import task_manager as module


def _job(job_id: str) -> JobDescriptor:
    return JobDescriptor(job_id, "job", (), ())


def test_the_task_manager_of_a_version_is_kept() -> None:
    first = module.task_manager("a", "0-1", lambda: _job("a"))
    assert module.task_manager("a", "0-1", lambda: pytest.fail("loaded twice")) is first


def test_another_program_or_attempt_of_a_job_gets_tasks_of_its_own() -> None:
    first = module.task_manager("a", "0-1", lambda: _job("a"))
    assert module.task_manager("a", "0-2", lambda: _job("a")) is not first
    assert module.task_manager("a", "0-1", lambda: _job("a")) is not first, "it was disposed of"


def test_the_job_used_longest_ago_makes_room() -> None:
    managers = [module.task_manager(str(number), "0-1", lambda: _job("x")) for number in range(module.MAX_JOBS)]
    module.task_manager("0", "0-1", lambda: pytest.fail("loaded twice"))
    module.task_manager("new", "0-1", lambda: _job("new"))
    for number in (0, *range(2, module.MAX_JOBS)):
        kept = module.task_manager(str(number), "0-1", lambda: pytest.fail("loaded twice"))
        assert kept is managers[number]
    assert module.task_manager("1", "0-1", lambda: _job("x")) is not managers[1]
