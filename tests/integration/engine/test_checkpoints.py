"""Checkpoints as Delta tables: what SQL reads of them, what is kept of them and for how long."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint import maintenance
from flinkish.checkpoint import writer as incremental
from flinkish.checkpoint.maintenance import Maintenance, oldest_changes, oldest_version
from flinkish.checkpoint.manifest import CheckpointDirectory, Savepoint
from flinkish.checkpoint.table import CheckpointTable
from flinkish.common import WatermarkStrategy
from flinkish.common.job_status import JobStatus
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.delta.check import check_log
from flinkish.delta.log import DeltaLog
from flinkish.errors import SavepointError
from tests.integration.engine.checkpointed_job import (
    TIMEOUT_S,
    counts_at,
    of_status,
    rows_of,
    start_changing,
    start_counting,
    stop_with_both,
    wait_for_checkpoints,
)
from tests.integration.engine.collecting import collecting, environment
from tests.support.processes import wait_until


# in the ordinary run, those of a job whose checkpoints fail are compared (test_faults.py), and changes are merged
# without a job (test_changes_of_checkpoints.py)
@pytest.mark.slow
def test_an_incremental_checkpoint_holds_what_a_savepoint_of_the_same_epoch_holds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "SMALL_STATE_ROWS", 0)
    monkeypatch.setattr(maintenance, "APPENDS_PER_MERGE", 2)
    with collecting() as collected:
        client = start_changing(collected, tmp_path)
        wait_for_checkpoints(client, 4)
        checkpoint, savepoint = stop_with_both(client)
    assert not of_status(client, "FAILED")
    taken = of_status(client, "COMPLETED")
    assert [c.incremental for c in taken] == [False] + [True] * (len(taken) - 1)
    for manifest in (Savepoint.open(checkpoint).manifest, Savepoint.open(savepoint).manifest):
        assert (manifest.epoch, manifest.sources) == (taken[-1].epoch, taken[-1].offsets)
    rows = rows_of(spark, checkpoint)
    assert rows == rows_of(spark, savepoint)
    kinds = {row[2] for row in rows}
    assert kinds == {"value", "list", "map", "reducing", "EVENT_TIME", "PROCESSING_TIME", "__watermark__"}


@pytest.mark.slow
def test_job_goes_on_from_a_checkpoint_behind_many_files_and_reads_none_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(200):
        (folder / f"{number}.txt").write_text(f"{number}\n")

    def start(job: str, **more: Any) -> Any:
        env = environment(tmp_path / job, execution__checkpointing__interval="1 ms", **more)
        lines = env.from_source(FileSource.text(str(folder)).monitor(), WatermarkStrategy.no_watermarks(), "lines")
        lines.uid("lines").sink_to(collected.sink())
        return env.execute_async("files")

    with collecting() as collected:
        rows = collected.rows["out"]
        client = start("first")
        wait_until(lambda: len(rows) >= 200, TIMEOUT_S, "all files")
        client.run.request_stop(JobStatus.SUSPENDED, "a signal takes a last checkpoint")
        client.get_job_execution_result().result(TIMEOUT_S)
        directory = CheckpointDirectory(str(tmp_path / "first" / "checkpoints"))
        checkpoint = directory.checkpoint(directory.completed()[-1])
        assert (Path(checkpoint) / "manifest.json").stat().st_size < 8_000
        assert list(Path(directory.ended).iterdir())
        (folder / "new.txt").write_text("new\n")
        client = start("second", execution__state_recovery__path=checkpoint)
        try:
            wait_until(lambda: "new" in rows, TIMEOUT_S, "the new file")
        finally:
            client.cancel().result(TIMEOUT_S)
    assert sorted(rows) == sorted(["new", *map(str, range(200))])


@pytest.mark.slow
@pytest.mark.parametrize("only_changes", [True, False])
def test_retained_checkpoints_stay_readable_when_others_are_cleaned_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_changes: bool
) -> None:
    monkeypatch.setattr(incremental, "SMALL_STATE_ROWS", 0)
    monkeypatch.setattr(maintenance, "APPENDS_PER_MERGE", 1)
    monkeypatch.setattr(maintenance, "MERGES_PER_COMPACTION", 2)
    with collecting() as collected:
        client = start_counting(
            collected,
            tmp_path,
            execution__checkpointing__num_retained=2,
            execution__checkpointing__incremental=only_changes,
            execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        )
        try:
            first = wait_for_checkpoints(client, 7)[0]
        finally:
            client.cancel().result(TIMEOUT_S)
    directory = CheckpointDirectory(str(tmp_path / "job" / "checkpoints"))
    retained = directory.completed()
    assert len(retained) == 2 and first.id not in retained
    sweep(spark, directory, retained)
    assert data_files(directory) == needed_files(spark, directory, retained), "nothing of the others is left"
    for number in retained:
        path = directory.checkpoint(number)
        assert latest_counts(rows_of(spark, path)) == counts_at(Savepoint.open(path).manifest.epoch or 0)


def latest_counts(rows: list[tuple[str, ...]]) -> dict[str, int]:
    """Key -> count, of the rows of a checkpoint."""
    return {row[3].strip('"'): int(row[5].split(",")[-1].strip(" ]}")) for row in rows if row[0] == "counts"}


def data_files(directory: CheckpointDirectory) -> set[str]:
    return {path.name for path in Path(directory.table).glob("*.parquet")}


def needed_files(spark: SparkSession, directory: CheckpointDirectory, retained: list[int]) -> set[str]:
    """Those of every version since the oldest retained one."""
    oldest = oldest_version(directory, retained)
    latest = CheckpointTable(spark, directory.table, lambda: None).log.newest()
    assert oldest is not None and latest is not None
    frames = (
        spark.read.format("delta").option("versionAsOf", version).load(directory.table)
        for version in range(oldest, latest + 1)
    )
    return {Path(name).name for frame in frames for name in frame.inputFiles()}


def sweep(spark: SparkSession, directory: CheckpointDirectory, retained: list[int]) -> None:
    """The next clean-up, at once."""
    table = CheckpointTable(spark.newSession(), directory.table, lambda: None)
    with pytest.MonkeyPatch.context() as at_once:
        at_once.setattr(maintenance, "OVERWRITES_PER_CLEAN_UP", 0)
        Maintenance(table, directory).clean(oldest_version(directory, retained), oldest_changes(directory, retained))


@pytest.mark.nightly
def test_sql_reads_the_current_row_of_a_key_in_a_table_that_a_killed_driver_had_begun(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "job" / "checkpoints" / "state" / "_delta_log").mkdir(parents=True)
    (tmp_path / "job" / "checkpoints" / "state" / "part-00000-half.snappy.parquet").write_bytes(b"PAR1")
    with collecting() as collected:
        client = start_counting(
            collected, tmp_path, execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION"
        )
        wait_for_checkpoints(client, 2)
        checkpoint, _ = stop_with_both(client)
    rows = spark.sql(
        f"SELECT value FROM delta.`{tmp_path}/job/checkpoints/state` WHERE uid = 'counts' AND key = '\"u21\"'"
    ).collect()
    count = counts_at(Savepoint.open(checkpoint).manifest.epoch or 0)["u21"]
    assert [row["value"] for row in rows] == [f'{{"$tuple": ["u21", {count}]}}']


def test_a_log_with_checkpoints_and_deletion_vectors_as_delta_writes_them_is_accepted(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "state")
    options = {"delta.checkpointInterval": "2", "delta.enableDeletionVectors": "true"}
    spark.range(0, 20, 1, 1).write.format("delta").options(**options).save(table)
    for number in range(2):
        spark.sql(f"DELETE FROM delta.`{table}` WHERE id = {number}").collect()
    checkpoints = list((tmp_path / "state" / "_delta_log").glob("*.checkpoint.parquet"))
    assert checkpoints and list((tmp_path / "state").glob("*.bin"))
    check_log(table, None)
    assert DeltaLog(table).protocol() is not None
    checkpoints[0].write_bytes(checkpoints[0].read_bytes()[:-9])
    with pytest.raises(SavepointError, match=f"{checkpoints[0]} is unreadable"):
        check_log(table, None)


def test_what_takes_too_long_is_given_up_and_a_cancelled_job_leaves_no_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        client = start_counting(
            collected,
            tmp_path,
            execution__checkpointing__timeout="10 ms",
            execution__checkpointing__tolerable_failed_checkpoints=1_000_000,
        )
        try:
            failed = wait_for_checkpoints(client, 1, "FAILED")[0]
            wait_until(lambda: client.run.last_epoch > failed.epoch + 1, TIMEOUT_S, "epochs after it")
        finally:
            client.cancel().result(TIMEOUT_S)
    assert failed.failure_reason == "it took longer than 10 ms"
    left = {path.name for path in (tmp_path / "job" / "checkpoints").iterdir()}
    assert not {name for name in left if name.startswith("chk-") or name == "state"}


def test_a_checkpoint_that_waits_for_a_slot_is_told_for_as_long_as_it_waits(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go = tmp_path / "go"

    def held(value: int) -> int:
        # behind the first epochs each of the two jobs has a slot until then
        while value >= 8 and not go.exists():
            (tmp_path / f"held-{os.getpid()}").touch()
            time.sleep(0.05)
        return value

    def started(name: str) -> Any:
        env = environment(tmp_path / name, parallelism__default="1")
        source = DataGeneratorSource(lambda index: index, records_per_epoch=2)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        # whose state is to be read
        numbers.map(held).uid("held").key_by(lambda value: value % 2).reduce(lambda one, other: one + other).uid("sum")
        return env.execute_async(name)

    clients = client, _ = started("saved"), started("other")
    try:
        wait_until(lambda: len(list(tmp_path.glob("held-*"))) == 2, TIMEOUT_S, "two held tasks")
        checkpoint = client.trigger_checkpoint(True)

        def told() -> list[str]:
            return [text for text in client.describe().warnings if "waits for a task slot" in text]

        wait_until(told, TIMEOUT_S, "the warning")
        assert not checkpoint.done()
        go.touch()
        assert checkpoint.result(TIMEOUT_S)
        wait_until(lambda: not told(), TIMEOUT_S, "the end of the warning")
    finally:
        go.touch()
        for one in clients:
            one.cancel().result(TIMEOUT_S)
    assert sum("waits for a task slot" in line for line in caplog.messages) == 1
