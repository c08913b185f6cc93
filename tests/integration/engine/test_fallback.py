"""A damaged checkpoint of Spark's: back to the last completed one in Delta, or refused with all that must be known."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import JobStatus, Row, Time, Types, WatermarkStrategy
from flinkish.common.accumulators import LongCounter
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream.functions import MapFunction, RuntimeContext
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import FinalOperationError
from tests.integration.engine.collecting import Collected, by_field, collecting, environment
from tests.support.described_jobs import ask
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.processes import wait_until

TIMEOUT_S = 120
PER_EPOCH, KEYS = 20, 7
CHECKPOINTS = {"execution__checkpointing__interval": "1 ms"}


class Ones(MapFunction):
    """(key, 1); counts the records of the whole job."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.records = LongCounter()
        runtime_context.add_accumulator("records", self.records)

    def map(self, value: Any) -> Any:
        self.records.add(1)
        return value[0], 1


def start(folder: Path, collected: Collected, count: int | None = None, **more: Any) -> Any:
    """Sums per key, and windows of ten records."""
    env = environment(folder / "job", **more)
    source = DataGeneratorSource(lambda i: (i % KEYS, i * 1000), count, records_per_epoch=PER_EPOCH, splits=2)
    numbers = env.from_source(source, by_field(1), "numbers").uid("numbers")
    ones = numbers.map(Ones()).uid("ones")
    ones.key_by(lambda e: e[0]).sum(1).uid("sums").sink_to(collected.sink("sums"))
    windows = numbers.map(lambda e: (e[1] // 1000, 1)).uid("indices").key_by(lambda e: 0)
    tens = windows.window(TumblingEventTimeWindows.of(Time.seconds(10))).reduce(lambda a, b: (a[0], a[1] + b[1]))
    tens.uid("tens").sink_to(collected.sink("tens"))
    return execute_observed(env, "numbers")


def stopped(folder: Path, collected: Collected, epochs: int, **more: Any) -> int:
    """Let the job run for so many epochs; the last one."""
    client = start(folder, collected, **more)
    wait_until(lambda: len(reports_of(client.run)) >= epochs or client.run.result.done(), TIMEOUT_S, "epochs")
    client.run.request_stop(JobStatus.SUSPENDED, "a signal")
    client.get_job_execution_result().result(TIMEOUT_S)
    return int(client.run.last_epoch)


def lose_state(folder: Path) -> Path:
    """Delete the last version of the state of one partition."""
    partition = folder / "job" / "spark" / "state" / "0" / "0"
    last = max(partition.glob("*.delta"), key=lambda path: int(path.stem))
    last.unlink()
    return last


def results(count: int) -> tuple[Counter[Any], Counter[Any]]:
    """What so many records give."""
    sums = Counter((index % KEYS, index // KEYS + 1) for index in range(count))
    return sums, Counter((begin, min(10, count - begin)) for begin in range(0, count, 10))


def test_with_a_checkpoint_of_the_last_epoch_the_job_goes_on_by_itself_and_says_so(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with collecting() as collected:
        last = stopped(tmp_path, collected, 3, **CHECKPOINTS)
        lost = lose_state(tmp_path)
        count = (last + 3) * PER_EPOCH
        client = start(tmp_path, collected, count, **CHECKPOINTS)
        client.get_job_execution_result().result(TIMEOUT_S)
        assert (Counter(collected.rows["sums"]), Counter(collected.rows["tens"])) == results(count)
    told = capsys.readouterr().err
    assert str(lost) in told
    assert re.search(rf"goes on from the checkpoint \S+/chk-\d+ of epoch {last}; nothing is repeated", told)
    assert reports_of(client.run)[0].epoch > last
    job = client.describe()
    assert [failure for failure in job.exceptions if str(lost) in str(failure)]
    restored = job.checkpoints.restored
    assert restored is not None and job.end_time_ms is not None
    number = int(re.findall(r"goes on from the checkpoint \S+/chk-(\d+)", told)[0])
    assert (restored.id, restored.is_savepoint, restored.path.endswith(f"/chk-{number}")) == (number, False, True)
    assert job.start_time_ms <= restored.time_ms <= job.end_time_ms, "within the run"
    assert (job.totals.drivers, job.totals.restarts, job.totals.records_in) == (2, 1, count)
    view = ask((job,), f"/jobs/{job.id}/checkpoints")
    assert view["latest"]["restored"] == {
        "id": number,
        "restore_timestamp": restored.time_ms,
        "is_savepoint": False,
        "external_path": restored.path,
    }
    # and it stays so: the job has ended in the query that took the place of the damaged one
    with collecting() as collected:
        again = start(tmp_path, collected, count)
        again.get_job_execution_result().result(TIMEOUT_S)
        assert collected.rows["sums"] == []
    assert again.describe().checkpoints.restored == restored, "also after a restart in the same directory"


@pytest.mark.slow
def test_epochs_behind_the_last_checkpoint_are_repeated_only_if_that_is_configured(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        safe = stopped(tmp_path, collected, 2, **CHECKPOINTS)
        last = stopped(tmp_path, collected, 2)
        lost = lose_state(tmp_path)
        count = (last + 2) * PER_EPOCH
        for more in ({}, {"flinkish__recovery__fallback": "never"}):
            with pytest.raises(FinalOperationError) as caught:
                start(tmp_path, collected, count, **more).get_job_execution_result().result(TIMEOUT_S)
            assert str(lost) in str(caught.value)
            assert re.search(rf"replay to go back to \S+/chk-\d+ \(epoch {safe}\)", str(caught.value))
        client = start(tmp_path, collected, count, flinkish__recovery__fallback="replay")
        client.get_job_execution_result().result(TIMEOUT_S)
        sums, _ = results(count)
        repeated = results((last + 1) * PER_EPOCH)[0] - results((safe + 1) * PER_EPOCH)[0]
        assert Counter(collected.rows["sums"]) == sums + repeated
        assert min(report.epoch for report in reports_of(client.run)) > last
        # the repeated epochs count once
        assert client.get_accumulators().result(TIMEOUT_S) == {"records": count}


@pytest.mark.nightly
def test_with_idempotent_sinks_epochs_are_repeated_by_themselves(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "sums.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE sums (id BIGINT PRIMARY KEY, n BIGINT)")
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"sqlite:///{database}").build()
    row = Types.ROW_NAMED(["id", "n"], [Types.LONG(), Types.LONG()])

    def run(count: int | None = None, **more: Any) -> Any:
        env = environment(tmp_path / "job", **more)
        source = DataGeneratorSource(lambda i: Row(i % KEYS, 1), count, records_per_epoch=PER_EPOCH, splits=2)
        ones = env.from_source(source, WatermarkStrategy.no_watermarks(), "ones", row).uid("ones")
        sums = ones.key_by(lambda one: one[0], Types.LONG()).reduce(lambda a, b: Row(a[0], a[1] + b[1])).uid("sums")
        sums.sink_to(JdbcSink.upsert("sums", ["id"], row, options)).uid("database")
        return execute_observed(env, "sums")

    def ended(client: Any) -> int:
        wait_until(lambda: len(reports_of(client.run)) >= 2 or client.run.result.done(), TIMEOUT_S, "epochs")
        client.run.request_stop(JobStatus.SUSPENDED, "a signal")
        client.get_job_execution_result().result(TIMEOUT_S)
        return int(client.run.last_epoch)

    safe = ended(run(**CHECKPOINTS))
    last = ended(run())
    lose_state(tmp_path)
    count = (last + 2) * PER_EPOCH
    run(count).get_job_execution_result().result(TIMEOUT_S)
    assert f"epochs {safe + 1} to {last} are repeated: all sinks are idempotent" in capsys.readouterr().err
    with closing(sqlite3.connect(database)) as connection:
        found = dict(connection.execute("SELECT id, n FROM sums"))
    assert found == Counter(index % KEYS for index in range(count))
