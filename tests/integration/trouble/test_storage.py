"""A job directory on a disk that is full, read-only or not there: said with its path, then the same job goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import JobStatus
from flinkish.error_display import OF_APPLICATION_MASTER, exit_code_of
from flinkish.errors import JobDirectoryError, OperationError, UserCodeError
from tests.integration.bad_input.job import PER_EPOCH, Job, pair
from tests.integration.trouble.small_disk import SmallDisk, small_disk
from tests.support.processes import wait_until

READ = 2 * PER_EPOCH


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def small_job(spark: SparkSession, disk: SmallDisk) -> Iterator[Job]:
    """A job whose directory is on the disk, which is full once the sink has got two epochs."""
    job = Job(disk.path)

    def take(rows: list[Any]) -> None:
        job.rows.extend(rows)
        if len(job.rows) == READ:
            disk.fill()

    job.collect(take)
    yield job
    job.close()


def refused(job: Job) -> str:
    with pytest.raises(OperationError) as caught:
        job.run()
    assert type(caught.value) is OperationError and caught.value.retryable, repr(caught.value)
    message = str(caught.value)
    assert str(job.directory) in message
    return message


def test_a_disk_that_is_full_is_told_and_with_space_the_next_start_goes_on(small_job: Job, disk: SmallDisk) -> None:
    message = refused(small_job)
    assert "no space left" in message
    # what the failed write has begun may have been given back
    assert re.search(rf"\d[\d.,]* \w+ are free at {re.escape(str(small_job.directory))}", message), message
    assert "then start the same job again: it goes on from the last committed epoch" in message
    assert len(small_job.rows) == READ
    assert "no space left" in refused(small_job), "a start finds no space either"
    disk.make_space()
    small_job.run()
    small_job.check_complete()


@pytest.mark.nightly
def test_a_job_that_is_restarted_waits_for_space(small_job: Job, disk: SmallDisk) -> None:
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "500 ms",
    }
    client = small_job.build(settings=settings).execute_async("shop")
    wait_until(lambda: client.get_job_status().result() is JobStatus.RESTARTING, 120, "the first failure")
    assert len(small_job.rows) == READ
    disk.make_space()
    client.get_job_execution_result().result(120)
    small_job.check_complete()


def fails_half_way(record: dict[str, Any]) -> Any:
    if record["index"] == READ:
        raise RuntimeError("half way")
    return pair(record)


@pytest.mark.nightly
def test_a_file_system_that_has_become_read_only_is_told_and_later_the_job_goes_on(
    spark: SparkSession, disk: SmallDisk
) -> None:
    job = Job(disk.path)
    with pytest.raises(UserCodeError, match="half way"):
        job.run(to_pair=fails_half_way)
    disk.remount("ro")
    assert "read-only" in refused(job).lower()
    disk.remount("rw")
    job.run()
    job.check_complete()
    job.close()


def test_a_job_directory_that_cannot_be_made_is_told_with_its_path(job: Job, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job.directory = tmp_path / "file" / "job"
    with pytest.raises(JobDirectoryError) as caught:
        job.run()
    message, code = str(caught.value), exit_code_of(caught.value, environment={})
    assert message.startswith(f"cannot create the job directory {job.directory}: a part of the path is not a directory")
    assert code == 77, "a supervisor would start it again and again"
    assert exit_code_of(caught.value, environment={OF_APPLICATION_MASTER: "x"}) == 1, "YARN shows its message"
    (tmp_path / "file").unlink()
    job.run()
    job.check_complete()
