"""A program that is refused before anything runs: the job, half done, goes on with the right program."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.errors import (
    ConfigurationError,
    DuplicateUidError,
    FencedError,
    FlinkishError,
    IncompatibleJobError,
    UnserializableFunctionError,
    UserCodeError,
)
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Claim, claim
from tests.integration.bad_input.job import PER_EPOCH, Job, pair
from tests.support.job_files import get, put

_attempts = itertools.count(100, 100)


def fails_half_way(record: dict[str, Any]) -> Any:
    if record["index"] == 2 * PER_EPOCH:
        raise RuntimeError("half way")
    return pair(record)


@pytest.fixture(scope="module")
def half_done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job that has committed two of its four epochs."""
    job = Job(tmp_path_factory.mktemp("half-done"))
    with pytest.raises(UserCodeError, match="half way"):
        job.run(to_pair=fails_half_way)
    yield job
    job.close()


@pytest.fixture
def job(half_done: Job, tmp_path: Path) -> Iterator[Job]:
    """A copy of it."""
    copy = Job(tmp_path)
    shutil.copytree(half_done.directory, copy.directory)
    copy.rows.extend(half_done.rows)
    # all copies are one job to Python workers, which tell its programs apart by the attempt
    put(JobDirectory(str(copy.directory)), "attempts.json", {"attempts": next(_attempts)})
    yield copy
    copy.close()


def refused(job: Job, kind: type[FlinkishError], **parts: Any) -> str:
    """The message of the refusal. The right program then goes on where the job stood."""
    before = len(job.rows)
    with pytest.raises(FlinkishError) as caught:
        job.run(**parts)
    assert type(caught.value) is kind, str(caught.value)
    assert len(job.rows) == before == 2 * PER_EPOCH
    return str(caught.value)


def holding(held: Any) -> Callable[[Any], Any]:
    def to_pair(record: Any) -> Any:
        return pair(record) if held else None

    return to_pair


def check_goes_on(job: Job) -> None:
    job.run()
    job.check_complete()


def test_a_function_that_holds_a_lock_is_refused_by_the_name_of_its_operator(job: Job) -> None:
    message = refused(job, UnserializableFunctionError, to_pair=holding(threading.Lock()))
    assert message.startswith("a function cannot be sent to the workers: ")
    assert "lock" in message.split(" [")[0]
    assert "job 'shop', operator 'Map' (uid pairs)" in message
    assert "create connections, locks and files in open()" in message
    check_goes_on(job)


@pytest.mark.nightly
def test_a_function_that_holds_the_spark_session_is_refused_by_the_name_of_its_operator(
    job: Job, spark: SparkSession
) -> None:
    message = refused(job, UnserializableFunctionError, after=holding(spark))
    assert message.startswith("a function cannot be sent to the workers: it refers to 'held', a SparkSession of Spark")
    assert "env.from_spark(df)" in message
    assert "job 'shop', operator 'Map' (uid after)" in message
    check_goes_on(job)


@pytest.mark.nightly
def test_a_key_selector_that_cannot_travel_is_refused_by_the_name_of_the_operator_before_it(job: Job) -> None:
    message = refused(job, UnserializableFunctionError, key=holding(threading.Lock()))
    assert "operator 'Map' (uid pairs)" in message
    check_goes_on(job)


@pytest.mark.nightly
def test_an_unknown_configuration_key_is_refused_with_the_one_that_was_meant(job: Job) -> None:
    message = refused(job, ConfigurationError, settings={"parallelism.defualt": "4"})
    assert message.startswith("unknown configuration key 'parallelism.defualt'")
    assert message.endswith("did you mean 'parallelism.default'?")
    check_goes_on(job)


@pytest.mark.nightly
def test_a_value_that_cannot_be_read_is_refused_with_its_key(job: Job) -> None:
    message = refused(job, ConfigurationError, settings={"parallelism.default": "two"})
    assert "two" not in message and "'parallelism.default'" in message and "expected a whole number" in message
    check_goes_on(job)


@pytest.mark.nightly
def test_a_uid_that_is_used_twice_is_refused_with_both_operators(job: Job) -> None:
    message = refused(job, DuplicateUidError, uids=("counts", "counts"))
    assert message.startswith("the uid 'counts' is used twice [operators 'Map' (node ")
    assert "and 'Sum' (node " in message and "change one of the uid(...) calls" in message
    check_goes_on(job)


def test_a_job_that_was_changed_incompatibly_is_refused_with_what_differs_and_what_would_be_lost(job: Job) -> None:
    message = refused(job, IncompatibleJobError, uids=("pairs", "sums"))
    assert "operator 'counts' is gone; operator 'sums' is new" in message
    assert "state of operators that the program does not have: counts" in message
    assert f"[job 'shop', directory {job.directory}]" in message
    assert "or allow the state to be dropped (-n" in message and "undo the change" in message
    check_goes_on(job)


def test_a_second_driver_is_refused_and_the_first_one_is_named(job: Job) -> None:
    first = JobDirectory(str(job.directory))
    first.claim("shop")
    message = refused(job, FencedError)
    assert f"another driver (process {os.getpid()} on {socket.gethostname()}) runs a job in this directory" in message
    assert "stop the other driver, or give this job a directory of its own (flinkish.job.dir)" in message
    first.check_owner("shop")
    first.release()
    check_goes_on(job)


def test_a_driver_that_another_one_has_taken_over_commits_nothing_more(spark: SparkSession, job: Job) -> None:
    other = JobDirectory(str(job.directory))

    def take_over(rows: list[Any]) -> None:
        """Called in the driver when the next epoch is delivered."""
        job.rows.extend(rows)
        if len(job.rows) == 3 * PER_EPOCH:
            claim(spark, other.path, Claim.of_this_process(other.token, "shop"))

    job.collect(take_over)
    with pytest.raises(FencedError) as caught:
        job.run()
    assert f"the driver of process {os.getpid()} on {socket.gethostname()} (since " in str(caught.value)
    assert "has taken over this job directory" in str(caught.value)
    assert len(job.rows) == 3 * PER_EPOCH
    job.collect(job.rows.extend)
    # the loser leaves owner.json alone; the winner gives the directory back
    put(other, "owner.json", {**get(other, "owner.json"), "token": other.token})
    other.release()
    job.run()
    # that epoch had reached the sink, and Spark has committed it: it is not delivered again
    assert sorted(set(job.rows)) == sorted(set(job.expected()))
    assert len(job.rows) == 4 * PER_EPOCH
