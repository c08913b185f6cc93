"""What Spark does for one thread is ended by another one, again and again until the thread has noticed."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.spark.settings import SparkWork
from tests.support.processes import wait_until
from tests.support.spark_groups import GroupsOfJobs

TIMEOUT_S = 60
GROUP = "spark.jobGroup.id"


def test_the_jobs_of_a_thread_are_ended_until_it_has_left_and_its_group_of_before_is_back() -> None:
    session: Any = GroupsOfJobs()
    session.setLocalProperty(GROUP, "of the program")
    with SparkWork(session, "savepoint") as work:
        own = session.getLocalProperty(GROUP)
        assert own != "of the program" and session.cancelled == []
        work.end()
        work.end()
        wait_until(lambda: len(session.cancelled) > 2, TIMEOUT_S, "the jobs to be ended again and again")
    assert set(session.cancelled) == {own} and session.getLocalProperty(GROUP) == "of the program"


def test_what_is_ended_after_the_thread_has_left_ends_nothing_that_follows() -> None:
    session: Any = GroupsOfJobs()
    with SparkWork(session, "savepoint") as before:
        pass
    with SparkWork(session, "savepoint") as work:
        before.end()
        work.end()
        wait_until(lambda: bool(session.cancelled), TIMEOUT_S, "the jobs to be ended")
    assert set(session.cancelled) == {session.begun[1]}


def test_spark_that_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    session: Any = GroupsOfJobs()
    answers = iter([ConnectionError("the JVM is busy")])

    def cancel(group: str) -> None:
        for error in answers:
            raise error
        session.cancelled.append(group)

    session.cancelJobGroup = cancel
    with SparkWork(session, "start") as work:
        work.end()
        wait_until(lambda: bool(session.cancelled), TIMEOUT_S, "the second attempt")
    assert "cannot be ended" in caplog.text and "the JVM is busy" in caplog.text
