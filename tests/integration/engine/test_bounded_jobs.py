"""Bounded jobs end by themselves: all windows fire, in few epochs, also when the last epoch is replayed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Encoder, JobStatus, Row, Time, Types, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.connectors.spark import DeltaSource
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.datastream.connectors.file_system import BucketAssigner, FileSink
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import FlinkishError, IncompatibleJobError, OperationError
from flinkish.runtime.phases import Phase, set_hook
from tests.integration.engine.collecting import Collected, by_field, collecting, environment
from tests.support.kafka_broker import KafkaBroker

LINES = 60
#: window start in s -> number of lines in it
WINDOWS = dict.fromkeys(range(0, LINES, 10), 10)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(3):
        lines = [f"{second},{second * 1000}" for second in range(part, LINES, 3)]
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return folder


def parsed(line: str) -> tuple[int, int]:
    second, time_ms = line.split(",")
    return int(second), int(time_ms)


def windows_of_lines(env: StreamExecutionEnvironment, files: Path, collected: Collected) -> None:
    """Lines per ten seconds. Out of order by as much as one file may be ahead of another."""
    windows(env.add_source(FileSource.text(str(files)), "lines"), collected)


def windows(lines: DataStream, collected: Collected) -> None:
    (
        lines.map(parsed)
        .assign_timestamps_and_watermarks(by_field(1, LINES * 1000))
        .map(lambda line: (line[0] // 10 * 10, 1))
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .sink_to(collected.sink())
    )


def epochs(job_dir: Path) -> list[int]:
    """The epochs that Spark has committed."""
    return sorted(int(path.name) for path in (job_dir / "spark" / "commits").iterdir() if path.name.isdigit())


def test_a_small_collection_takes_one_epoch(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job")
        env.from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(lambda e: e[0]).sum(1).sink_to(collected.sink())
        client = env.execute_async("small")
        client.get_job_execution_result().result()
    assert sorted(collected.rows["out"]) == [("a", 1), ("a", 4), ("b", 2)]
    assert epochs(tmp_path / "job") == [0]
    assert client.get_job_status().result() is JobStatus.FINISHED


@pytest.mark.nightly
def test_what_ported_programs_do_with_none_and_with_text_files(spark: SparkSession, tmp_path: Path) -> None:
    """A map with a type returns None for a filter to drop, a key is None, and text files have Java's text."""
    pair = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.FLOAT()])
    env = environment(tmp_path / "job")
    lines = env.from_collection(["a,0.1", "broken", ",10000000", "a,0.2", ",1"], Types.STRING())
    amounts = lines.map(amount_of, pair).filter(lambda row: row is not None)
    sums = amounts.key_by(lambda row: row.name, Types.STRING()).reduce(lambda a, b: Row(a.name, a.amount + b.amount))
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sums.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    env.execute("ported")
    written = [line for path in (tmp_path / "out").glob("part-*") for line in path.read_text().splitlines()]
    assert sorted(written) == ["+I[a, 0.1]", "+I[a, 0.3]", "+I[null, 1.0000001E7]", "+I[null, 1.0E7]"]


def amount_of(line: str) -> Any:
    name, comma, amount = line.partition(",")
    return (name or None, float(amount)) if comma else None


def test_none_of_a_declared_type_is_refused_where_it_leaves_its_task(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path / "job")
    lines = env.from_collection(["1", "broken"], Types.STRING())
    numbers = lines.map(lambda line: int(line) if line.isdigit() else None, Types.INT()).name("parse")
    numbers.filter(lambda number: number != 0).rebalance().map(lambda number: number + 1).print()
    with pytest.raises(FlinkishError, match=r"None .* does not fit the declared type Integer .*results of 'parse'"):
        env.execute("typed")


def test_a_file_job_ends_with_the_end_of_its_input(spark: SparkSession, tmp_path: Path, files: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job", flinkish__epoch__max_records_per_source=6)
        windows_of_lines(env, files, collected)
        env.execute("files")
    assert dict(collected.rows["out"]) == WINDOWS
    assert len(collected.rows["out"]) == len(WINDOWS)
    assert len(epochs(tmp_path / "job")) >= LINES // 6


def test_files_and_partitions_that_are_fewer_than_subtasks_are_read_to_their_ends(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    """Those that have nothing to read end in the first epoch, in which a receiver may get nothing from the others."""
    (tmp_path / "in").mkdir()
    for part, count in enumerate((3, 20)):
        (tmp_path / "in" / f"{part}.txt").write_text("".join(f"file {part} {n}\n" for n in range(count)))
    kafka.create_topic("fewer", partitions=2)
    for partition, count in enumerate((1, 15)):
        kafka.produce("fewer", [f"topic {partition} {n}" for n in range(count)], partition=partition)
    topic = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics("fewer")
    topic = topic.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    topic = topic.set_value_only_deserializer(SimpleStringSchema())
    with collecting() as collected:
        env = environment(
            tmp_path / "job",
            parallelism__default=3,
            pipeline__max_parallelism=12,
            flinkish__epoch__max_records_per_source=3,
        )
        files = env.add_source(FileSource.text(str(tmp_path / "in")), "files")
        whole = env.from_source(
            topic.set_bounded(KafkaOffsetsInitializer.latest()).build(), WatermarkStrategy.no_watermarks(), "bounded"
        )
        for name, stream in (("files", files), ("bounded", whole)):
            stream.key_by(lambda line: line).map(lambda line: line).sink_to(collected.sink(name))
        stopped = env.from_source(
            topic.set_unbounded(KafkaOffsetsInitializer.latest()).build(),
            WatermarkStrategy.for_monotonous_timestamps(),
            "stopping",
        )
        by_part = stopped.map(lambda line: (line.rpartition(" ")[0], 1)).key_by(lambda pair: pair[0])
        by_part.window(TumblingEventTimeWindows.of(Time.days(10_000))).sum(1).sink_to(collected.sink("windows"))
        env.execute("fewer")
    for name, count in (("files", 3 + 20), ("bounded", 1 + 15)):
        assert len(collected.rows[name]) == len(set(collected.rows[name])) == count
    assert sorted(collected.rows["windows"]) == [("topic 0", 1), ("topic 1", 15)]


def test_without_bounds_on_epochs_a_file_job_takes_one(spark: SparkSession, tmp_path: Path, files: Path) -> None:
    with collecting() as collected:
        unlimited = {
            "flinkish__epoch__max_records_per_source": 2**60,
            "flinkish__epoch__max_bytes_per_source": 2**60,
        }
        env = environment(tmp_path / "job", **unlimited)
        windows_of_lines(env, files, collected)
        env.execute("files at once")
    assert dict(collected.rows["out"]) == WINDOWS
    assert epochs(tmp_path / "job") == [0]


@pytest.mark.parametrize(
    ("spark_reads", "phase"),
    [
        (False, Phase.COMMIT_BEGUN),
        pytest.param(True, Phase.METADATA_COMMITTED, marks=pytest.mark.nightly),
        pytest.param(False, Phase.PLANNED, marks=pytest.mark.slow),
        pytest.param(True, Phase.PLANNED, marks=pytest.mark.slow),
        pytest.param(False, Phase.METADATA_COMMITTED, marks=pytest.mark.slow),
        pytest.param(True, Phase.COMMIT_BEGUN, marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_fails_in_the_last_epoch_ends_the_job_when_it_is_started_again(
    spark: SparkSession, tmp_path: Path, files: Path, phase: Phase, spark_reads: bool
) -> None:
    """Files tell their end in the epoch of their last record; of what Spark reads an epoch of its own tells it. That
    epoch is the last one when it runs again, and if it is committed there is none to run."""
    job_dir, table = tmp_path / "job", str(tmp_path / "table")
    failed: list[int] = []
    if spark_reads:
        spark.read.text(str(files)).write.format("delta").save(table)

    def fail(at: Phase, details: dict[str, Any]) -> None:
        if at is phase and not failed and (not spark_reads or (job_dir / "end-of-input.json").exists()):
            failed.append(details["epoch"])
            raise OSError("the driver's disk is gone")

    with collecting() as collected:
        for attempt in range(2):
            env = environment(job_dir)
            if spark_reads:
                rows = env.from_source(DeltaSource(table, bounded=True), WatermarkStrategy.no_watermarks(), "lines")
                windows(rows.map(lambda row: row[0]), collected)
            else:
                windows_of_lines(env, files, collected)
            set_hook(fail)
            try:
                if attempt == 0:
                    with pytest.raises(FlinkishError, match="the driver's disk is gone"):
                        env.execute("replayed")
                else:
                    env.execute("replayed")
            finally:
                set_hook(None)
    assert failed
    assert sorted(collected.rows["out"]) == sorted(WINDOWS.items())
    assert (job_dir / "ended.json").exists()


@pytest.mark.parametrize("interval", [pytest.param("0 ms", marks=pytest.mark.nightly), "10 ms"])
def test_a_query_that_somebody_else_stops_is_not_taken_for_the_end_of_its_job(
    spark: SparkSession, tmp_path: Path, files: Path, interval: str
) -> None:
    """As a notebook does that cancels its cell, and Spark itself when its JVM shuts down."""
    with collecting() as collected:
        env = environment(
            tmp_path / "job", flinkish__epoch__max_records_per_source=8, flinkish__epoch__interval=interval
        )
        windows_of_lines(env, files, collected)

        def stop(at: Phase, details: dict[str, Any]) -> None:
            if at is Phase.PLANNED and details["epoch"] == 1:
                (query,) = spark.streams.active
                # from a thread of its own, since it waits for this epoch
                threading.Thread(target=query.stop, daemon=True).start()
                time.sleep(1)

        set_hook(stop)
        try:
            # Spark says nothing of the stop, unless a call into its JVM is interrupted by it
            with pytest.raises(OperationError, match="the query was stopped, and not by flinkish|InterruptedException"):
                env.execute("stopped")
        finally:
            set_hook(None)
        assert not (tmp_path / "job" / "ended.json").exists()
        env = environment(
            tmp_path / "job", flinkish__epoch__max_records_per_source=8, flinkish__epoch__interval=interval
        )
        windows_of_lines(env, files, collected)
        env.execute("stopped")
    assert sorted(collected.rows["out"]) == sorted(WINDOWS.items())


def test_a_job_with_an_interval_ends_though_its_last_epoch_was_committed_before_it_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    failed: list[int] = []

    def fail(at: Phase, details: dict[str, Any]) -> None:
        if at is Phase.METADATA_COMMITTED and not failed:
            failed.append(details["epoch"])
            raise OSError("the driver's disk is gone")

    with collecting() as collected:
        for attempt in range(2):
            env = environment(tmp_path / "job", flinkish__epoch__interval="100 ms")
            env.from_collection([1, 2]).key_by(lambda n: n).map(lambda n: n).sink_to(collected.sink())
            set_hook(fail)
            try:
                client = env.execute_async("replayed")
                if attempt == 0:
                    with pytest.raises(FlinkishError, match="the driver's disk is gone"):
                        client.get_job_execution_result().result(60)
                else:
                    client.get_job_execution_result().result(60)
            finally:
                set_hook(None)
    assert sorted(collected.rows["out"]) == [1, 2]
    assert (tmp_path / "job" / "ended.json").exists()


def test_a_finished_job_returns_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        for _ in range(2):
            env = environment(tmp_path / "job")
            env.from_collection([1, 2, 3]).key_by(lambda n: n % 2).sum().sink_to(collected.sink())
            env.execute("once")
    assert sorted(collected.rows["out"]) == [1, 2, 4]
    assert epochs(tmp_path / "job") == [0]


@pytest.mark.nightly
def test_each_execute_of_a_program_runs_once_in_a_directory_of_its_own(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with collecting() as collected:
        for _ in range(2):
            env = environment(tmp_path / "job")
            for name, values in (("load", [1, 2]), ("clean & sort", [3]), ("report", [4])):
                env.from_collection(values).map(lambda n: n).sink_to(collected.sink(name))
                env.execute(name)
    assert dict(collected.rows) == {"load": [1, 2], "clean & sort": [3], "report": [4]}
    directories = [tmp_path / "job", *sorted((tmp_path / "job" / "jobs").iterdir())]
    assert [epochs(directory) for directory in directories] == [[0], [0], [0]]
    lines = [line for line in capsys.readouterr().err.splitlines() if "nothing was run" in line]
    assert [line.partition(":")[0] for line in lines] == ["load", "clean & sort", "report"]
    assert str(tmp_path / "job" / "jobs" / "report") in lines[2]


@pytest.mark.nightly
def test_another_program_in_a_finished_directory_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job", parallelism__default=1)
        env.from_collection([1, 2, 3]).map(lambda n: n).sink_to(collected.sink())
        env.execute("once")
        env = environment(tmp_path / "job", parallelism__default=1)
        env.from_collection([4, 5, 6]).filter(lambda n: True).sink_to(collected.sink())
        with pytest.raises(IncompatibleJobError, match="another program has come to its end in this job directory"):
            env.execute("once")
    assert sorted(collected.rows["out"]) == [1, 2, 3]
