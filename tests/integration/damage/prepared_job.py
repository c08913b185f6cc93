"""A job that has stopped in its midst, with all that it keeps, and its ends after something was done to that.

<folder>/job/            the job directory, with Spark's checkpoint and completed checkpoints
<folder>/savepoint-…/    a savepoint of the last epoch
<folder>/out.db          what the sink has got: each row once, or a test is red
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flinkish.common import JobStatus, Row, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from flinkish.jobmanager.savepoint import take_savepoint
from tests.integration.engine.collecting import environment
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.processes import wait_until

PER_EPOCH, KEYS = 10, 3
#: the job is stopped after at least so many epochs, and then has two more to do
EPOCHS = 3
COUNT = Types.ROW_NAMED(["k", "n"], [Types.LONG(), Types.LONG()])
TIMEOUT_S = 300
OFTEN = {"execution__checkpointing__interval": "1 ms"}
#: of a job that goes on to its end, at which it deletes its checkpoints
SELDOM = {"execution__checkpointing__interval": "1 h"}


class PreparedJob:
    """The folder of one, or a copy of it. ``epochs``: how many were run before it stopped."""

    def __init__(self, folder: Path, epochs: int = 0, savepoint: str = "") -> None:
        self.folder = folder
        self.epochs = epochs
        self._savepoint = savepoint
        #: the newest checkpoint when the copy was made: a job that ends deletes its checkpoints
        self.checkpoint_before = folder

    @property
    def directory(self) -> Path:
        return self.folder / "job"

    @property
    def savepoint(self) -> Path:
        return self.folder / self._savepoint

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def checkpoint(self) -> Path:
        """The newest completed one."""
        return max(self.checkpoints.glob("chk-*"), key=lambda path: int(path.name.removeprefix("chk-")))

    @property
    def records(self) -> int:
        return (self.epochs + 2) * PER_EPOCH

    def prepare(self, spark: SparkSession, enough: Callable[[], bool] = lambda: True, **more: Any) -> None:
        """Run it for the first time, until there is ``enough``, and stop it."""
        self.folder.mkdir()
        connection = sqlite3.connect(self.folder / "out.db")
        with connection:
            connection.execute("CREATE TABLE counts (k INTEGER, n INTEGER)")
        connection.close()
        run = self.run_and_stop(EPOCHS, enough, **more)
        self._savepoint = Path(take_savepoint(run, str(self.folder))).name
        jvm: Any = spark._jvm
        table = str(self.checkpoints / "state")
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table).checkpoint()

    def run_and_stop(self, epochs: int, enough: Callable[[], bool] = lambda: True, **more: Any) -> Any:
        """Run it for some epochs, stop it as a signal would; a last checkpoint is taken then."""
        run = execute_observed(self.build(None, self.directory, **more), "counting").run
        try:
            wait_until(lambda: (len(reports_of(run)) >= epochs and enough()) or run.result.done(), TIMEOUT_S, "epochs")
        finally:
            run.request_stop(JobStatus.SUSPENDED, "a signal")
            run.wait(TIMEOUT_S)
        run.result.result(0)
        self.epochs = run.last_epoch + 1
        return run

    def copy(self, folder: Path) -> PreparedJob:
        shutil.copytree(self.folder, folder)
        made = type(self)(folder, self.epochs, self._savepoint)
        made.checkpoint_before = made.checkpoint
        return made

    def build(self, count: int | None, directory: Path, **more: Any) -> StreamExecutionEnvironment:
        """(key, how many so far), per record. Checkpoints are taken as often as possible."""
        settings = {"parallelism__default": 1, "pipeline__max_parallelism": 2, **OFTEN, **more}
        env = environment(directory, **settings)
        source = DataGeneratorSource(lambda i: i, count, records_per_epoch=PER_EPOCH)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        ones = numbers.map(lambda i: (i % KEYS, 1)).uid("ones")
        counts = self.counts(ones.key_by(lambda e: e[0])).uid("counts")
        url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        url = url.with_url(f"jdbc:sqlite:{self.folder / 'out.db'}").build()
        rows = counts.map(lambda e: Row(*e), COUNT).uid("rows")
        rows.add_sink(JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", COUNT, url)).uid("database")
        return env

    def counts(self, ones: KeyedStream) -> DataStream:
        """(key, how many so far), of the records of each key."""
        return ones.reduce(lambda a, b: (a[0], a[1] + b[1]))

    def go_on(self, **more: Any) -> None:
        """In the same job directory, to the end."""
        self.build(self.records, self.directory, **SELDOM, **more).execute("counting")

    def restore(self, path: Path, **more: Any) -> None:
        """In a new job directory, from a savepoint or checkpoint, to the end."""
        more["execution__state_recovery__path"] = path
        self.build(self.records, self.folder / "new", **SELDOM, **more).execute("counting")

    def check_golden(self) -> None:
        """Each record was counted once and its count written once, over all runs."""
        connection = sqlite3.connect(self.folder / "out.db")
        rows = sorted(connection.execute("SELECT k, n FROM counts").fetchall())
        connection.close()
        assert rows == sorted((index % KEYS, index // KEYS + 1) for index in range(self.records))
