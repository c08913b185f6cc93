"""A job directory on S3 whose driver is killed, started again, and taken over by another one: the results are exact,
and old files are deleted all the while."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from flinkish.exit_codes import ExitCode
from flinkish.runtime.task import RETAINED_EPOCHS
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

    def start(self, number: int, **more: str) -> ProcessGroup:
        """Starts a driver of the job."""
        settings = {**self._settings, **{key.replace("_", "."): value for key, value in more.items()}}
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
    with job.start(2, flinkish_epoch_interval="5 s") as second:
        job.wait_for(second, 25)
        with job.start(3, flinkish_job_takeover="newest") as third:
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
