"""Restarts on Spark: a sink that is away for a while, and a task that Spark itself tries again."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration, JobStatus, Row, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager import signals as live_jobs
from tests.integration.bad_input.job import COUNT, PER_EPOCH, Job, event, pair
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until

ROW = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])
RESTARTS = {
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "300 ms",
    "restart-strategy.exponential-delay.max-backoff": "1 s",
}


class Gate:
    """Records behind the middle wait until it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __call__(self, record: dict[str, Any]) -> Any:
        while record["index"] == 2 * PER_EPOCH and not os.path.exists(self._path):
            time.sleep(0.02)
        return pair(record)

    def open(self) -> None:
        Path(self._path).touch()


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Iterator[Job]:
    created = Job(tmp_path)
    yield created
    created.close()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    uri = postgres.create_database()
    postgres.query(uri, 'CREATE TABLE counts ("user" TEXT PRIMARY KEY, n BIGINT)')
    yield uri
    postgres.start()


def in_background(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failures


@pytest.mark.nightly
def test_a_job_with_a_directory_is_restarted_and_takes_checkpoints_though_nothing_says_so(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "failed"

    def fails_once(number: int) -> int:
        if number == 1 and not mark.exists():
            mark.touch()
            raise OSError("the server is away")
        return number

    settings = {"flinkish.job.dir": str(tmp_path / "job"), "execution.trigger": "available-now"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(1)
    numbers = env.from_source(
        DataGeneratorSource(lambda index: index, type_info=Types.LONG(), records_per_epoch=3),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    ).map(fails_once, Types.LONG())
    with numbers.execute_and_collect("numbers") as results:
        # the epoch that has failed is planned anew, and is the one that this run reads
        assert list(results) == [0, 1, 2]
    told = capfd.readouterr().err
    assert "numbers: attempt 1 failed: UserCodeError: OSError in user code: the server is away" in told
    # between 1 and 1.1 s
    assert re.search(r"restarting in 1(\.\d+)? s \(restart 1, restart-strategy exponential-delay\)\nTraceback", told)
    assert 'raise OSError("the server is away")' in told
    assert (tmp_path / "job" / "checkpoints" / "chk-1").is_dir()


@pytest.mark.slow
def test_a_database_that_is_away_for_a_while_is_waited_for_and_gets_each_row_once(
    job: Job, postgres: PostgresServer, database: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(database).build()
    once = JdbcExecutionOptions.builder().with_max_retries(0).build()
    sink = JdbcSink.upsert("counts", ["user"], ROW, options, once)
    gate = Gate(tmp_path / "gate")
    thread, failures = in_background(
        lambda: job.run(to_pair=gate, sink=sink, after=lambda pair: Row(*pair), settings=RESTARTS)
    )
    half = "SELECT COALESCE(SUM(n), 0) FROM counts"
    wait_until(lambda: failures or postgres.query(database, half) == [(2 * PER_EPOCH,)], 100, "half of the rows")
    (run,) = live_jobs.running()
    postgres.stop()
    gate.open()
    wait_until(lambda: failures or run.status is JobStatus.RESTARTING, 100, "the first restart")
    # once more: the first restart finds it away as well
    wait_until(lambda: failures or run.restarts.made >= 2, 100, "the second restart")
    postgres.start()
    thread.join(100)
    assert failures == [] and run.status is JobStatus.FINISHED

    counts = dict(postgres.query(database, 'SELECT "user", n FROM counts'))
    assert counts == Counter(event(index)["user"] for index in range(COUNT))
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("shop: attempt ")]
    assert len(told) == run.restarts.made
    assert told[0].startswith("shop: attempt 1 failed: ConnectionFailedError: the database cannot be reached")
    assert "; restarting in 0.3" in told[0] and told[0].endswith("s (restart 1, restart-strategy exponential-delay)")
