"""A job directory on S3 whose driver is killed, started again, and taken over by another one: the results are exact,
old files are deleted all the while, and the checkpoints can be restored."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from flinkish.error_display import ExitCode
from flinkish.runtime.task.task import RETAINED_EPOCHS
from tests.integration.engine.counting_job import expected, in_database, make_tables
from tests.platforms.s3_server import S3Server, hadoop_aws_jars
from tests.platforms.summed_job import EPOCHS, RECORDS
from tests.support.processes import ProcessGroup, python_path
from tests.support.spark_jars import spark_jars

pytestmark = pytest.mark.platforms

PATIENCE_S = 300
#: Old files are deleted once in so many epochs.
_DELETED_EVERY = 20
_SETTINGS = {
    "execution.checkpointing.interval": "0",
    "flinkish.history.enabled": "false",
    "flinkish.prepare": "off",
    # how often Spark makes snapshots of state, without which all changes since the last one stay
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
}


class Job:
    """The job in a directory of the bucket, with the storage of its state."""

    def __init__(self, s3: S3Server, folder: Path, name: str, backend: str) -> None:
        self._s3 = s3
        self._folder = folder
        self._directory = f"jobs/{name}"
        self._settings = {
            **_SETTINGS,
            **s3.spark_settings(),
            "flinkish.job.dir": f"s3a://{self._directory}",
            "state.backend.type": backend,
        }
        make_tables(folder)

    def start(self, number: int, more: Mapping[str, str] = {}) -> ProcessGroup:
        """Starts a driver of the job, with more settings."""
        settings = {**self._settings, **more}
        command = [sys.executable, "-m", "tests.platforms.summed_job", str(self._folder)]
        class_path = ":".join(map(str, [*spark_jars(), *hadoop_aws_jars()]))
        environment = {
            "PYTHONPATH": python_path(),
            "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {class_path} pyspark-shell",
        }
        command += [f"{key}={value}" for key, value in settings.items()]
        return ProcessGroup(command, self._folder / f"driver-{number}.log", environment)

    def files(self) -> list[str]:
        """The files in its directory, relative to it."""
        infos = self._s3.file_system().get_file_info(
            FileSelector(self._directory, recursive=True, allow_not_found=True)
        )
        return [info.path.removeprefix(f"{self._directory}/") for info in infos if info.is_file]

    def batches(self, kind: str = "commits") -> list[int]:
        """The batches that a query has in its log."""
        found = (re.fullmatch(rf"spark[^/]*/{kind}/(\d+)", name) for name in self.files())
        return sorted(int(match[1]) for match in found if match)

    def checkpoints(self) -> list[int]:
        """The numbers of its retained checkpoints."""
        found = (re.fullmatch(r"checkpoints/chk-(\d+)/manifest.json", name) for name in self.files())
        return sorted(int(match[1]) for match in found if match)

    def path(self, checkpoint: int) -> str:
        """Where this checkpoint lies."""
        return f"s3a://{self._directory}/checkpoints/chk-{checkpoint}"

    def wait_for_checkpoint(self, driver: ProcessGroup, number: int) -> None:
        """Until this checkpoint, or a later one, is there."""
        driver.wait_for(lambda: max(self.checkpoints(), default=0) >= number, PATIENCE_S, f"checkpoint {number}")

    def wait_for(self, driver: ProcessGroup, batch: int) -> None:
        """Until this batch is committed."""
        driver.wait_for(lambda: max(self.batches(), default=-1) >= batch, PATIENCE_S, f"the commit of batch {batch}")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_whose_driver_is_killed_and_then_taken_over_is_exact_and_keeps_few_files(
    backend: str, s3: S3Server, tmp_path: Path
) -> None:
    job = Job(s3, tmp_path, f"killed-{backend}", backend)
    with job.start(1) as first:
        job.wait_for(first, 22)
        first.kill()
    assert min(job.batches()) > 0, "old files were deleted"
    # so slow that it works when the third one has started, on a busy machine, too
    with job.start(2, {"flinkish.epoch.interval": "5 s"}) as second:
        job.wait_for(second, 25)
        with job.start(3, {"flinkish.job.takeover": "newest"}) as third:
            said = second.end_with(ExitCode.FENCED, PATIENCE_S)
            assert "has taken over" in said
            third.succeed(PATIENCE_S)
    assert in_database(tmp_path) == expected(RECORDS)
    names = job.files()
    most = RETAINED_EPOCHS + _DELETED_EVERY + 1
    assert max(job.batches()) == EPOCHS - 1
    assert len(job.batches()) <= most and len(job.batches("offsets")) <= most, names
    # the older driver may have written after the newer one has deleted the copy that it was taken from
    assert len([name for name in names if name.startswith("spark/")]) < 10, names
    states = Counter(re.sub(r"[^/]+$", "", name) for name in names if re.search(r"/state/\d+/\d+/\d", name))
    print(dict(states), len(names))
    # the changes since the last snapshot that is old enough, and snapshots
    assert max(states.values()) <= most + 20 + most // 10, names
    assert len(names) <= 200, names
    if backend == "hashmap":
        # those of RocksDB are deleted by Spark, which leaves what it was writing when it was killed
        assert not [name for name in names if name.endswith(".tmp")], names


def test_the_checkpoints_of_drivers_that_were_killed_and_taken_over_are_restored(s3: S3Server, tmp_path: Path) -> None:
    often = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        # so slow that the job has not ended at the last of the drivers
        "flinkish.epoch.interval": "2 s",
    }
    job = Job(s3, tmp_path, "checkpoints", "hashmap")
    with job.start(1, often) as first:
        job.wait_for_checkpoint(first, 3)
        first.kill()
    with job.start(2, often) as second:
        job.wait_for_checkpoint(second, max(job.checkpoints()) + 2)
        with job.start(3, {**often, "flinkish.job.takeover": "newest"}) as third:
            second.end_with(ExitCode.FENCED, PATIENCE_S)
            job.wait_for_checkpoint(third, max(job.checkpoints()) + 2)
            third.kill()
    assert len(job.checkpoints()) <= 2, "retained is one, and the one that is being replaced"
    written = in_database(tmp_path)
    folder = tmp_path / "restored"
    folder.mkdir()
    restored = Job(s3, folder, "restored", "hashmap")
    with restored.start(1, {"execution.state-recovery.path": job.path(max(job.checkpoints()))}) as fourth:
        fourth.succeed(PATIENCE_S)
    rows = in_database(folder)
    assert len(set(rows)) == len(rows) < RECORDS, "it has begun behind the checkpoint"
    assert sorted({*written, *rows}) == expected(RECORDS)
    assert all(count > 1 for _, count in rows), "and counts on from there"
