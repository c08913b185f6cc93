"""Jobs over files, epoch by epoch: how much an epoch takes of them, who reads them, and what windows make of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.common import Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.source import FileSource
from flinkish.datastream import MapFunction, RuntimeContext
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.minicluster import MiniCluster
from flinkish.testing import TestingSink

from .programs import bounded, environment, job_of, run

MINUTE_MS = 60_000
TIMED = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


def records_of_epochs(sink: TestingSink) -> list[int]:
    """How many records each epoch has given."""
    counts = [0] * (1 + max(epoch for _, epoch in sink.commits))
    for (_, epoch), values in sink.commits.items():
        counts[epoch] += len(values)
    return counts


# ------------------------------------------------------------------------------------------- windows


def write_times(folder: Path, files: int, rows: int, step_ms: int) -> None:
    """Files that all go over the whole span of time."""
    for file in range(files):
        times = [number * step_ms + file for number in range(rows)]
        columns = {"file": [file] * rows, "number": list(range(rows)), "time": times}
        pq.write_table(pa.table(columns), folder / f"{file}.parquet", row_group_size=rows // 4)


def windows_of(folder: Path, per_epoch: int, parallelism: int = 2) -> tuple[list[Any], int]:
    """(start of the window, records) of a job with a bound of 5 s, and its number of epochs."""
    env, fired = environment(parallelism), TestingSink()
    source = FileSource.parquet(str(folder), type_info=TIMED, columns=["file", "number", "time"])
    minutes = env.from_source(source, bounded(5_000), "rows").map(lambda row: (row[2] // MINUTE_MS, 1))
    windowed = minutes.key_by(lambda pair: 0).window(TumblingEventTimeWindows.of(Time.minutes(1)))
    windowed.reduce(lambda a, b: (min(a[0], b[0]), a[1] + b[1])).sink_to(fired)
    epochs = run(job_of(env), per_epoch)
    return sorted(fired.values), epochs


@pytest.mark.parametrize("per_epoch", [10, 64, 333])
def test_windows_over_two_files_of_the_same_span_are_complete_in_any_number_of_epochs(
    tmp_path: Path, per_epoch: int
) -> None:
    rows, step_ms = 600, 1_000
    write_times(tmp_path, 2, rows, step_ms)
    expected = [(minute, 2 * 60) for minute in range(rows * step_ms // MINUTE_MS)]
    found, epochs = windows_of(tmp_path, per_epoch)
    assert epochs > 3
    assert found == expected
    assert windows_of(tmp_path, 1_000_000) == (expected, 1)


# ------------------------------------------------------------------------------------------- epochs


@pytest.mark.parametrize(
    ("settings", "most"), [({"max_records_per_epoch": 700}, 700), ({"max_bytes_per_epoch": 16 * 500}, 500)]
)
def test_one_large_text_file_is_as_many_epochs_as_the_bounds_make_of_it(
    tmp_path: Path, settings: dict[str, int], most: int
) -> None:
    (tmp_path / "one.txt").write_text("0123456789abcde\n" * 10_000)
    assert_bounded(FileSource.text(str(tmp_path)), 10_000, settings, most)


@pytest.mark.parametrize(
    ("settings", "most"), [({"max_records_per_epoch": 700}, 700), ({"max_bytes_per_epoch": 24 * 500}, 500)]
)
def test_one_large_parquet_file_is_as_many_epochs_as_the_bounds_make_of_it(
    tmp_path: Path, settings: dict[str, int], most: int
) -> None:
    columns = {name: range(10_000) for name in ("file", "number", "time")}
    pq.write_table(pa.table(columns), tmp_path / "one.parquet", use_dictionary=False)
    source = FileSource.parquet(str(tmp_path), type_info=TIMED, columns=list(columns))
    assert_bounded(source, 10_000, settings, most)


def assert_bounded(source: FileSource, records: int, settings: dict[str, int], most: int) -> None:
    env, sink = environment(2), TestingSink()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "one").sink_to(sink)
    MiniCluster(job_of(env, **settings)).run()
    counts = records_of_epochs(sink)
    assert sum(counts) == records
    assert max(counts) <= most
    assert len(counts) >= records // most


# ------------------------------------------------------------------------------------------- subtasks


LINES = [f"{file},{number}" for file in range(7) for number in range(11)]


def write_lines(folder: Path) -> FileSource:
    """Seven files of eleven lines."""
    for file in range(7):
        (folder / f"{file}.txt").write_text("".join(f"{line}\n" for line in LINES if line[0] == str(file)))
        os.utime(folder / f"{file}.txt", (file, file))
    return FileSource.text(str(folder))


class WithSubtask(MapFunction):
    """Record -> (subtask, record)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> tuple[int, Any]:
        return self._subtask, value


@pytest.mark.parametrize("per_epoch", [5, 12, 1000])
def test_a_source_of_parallelism_one_reads_all_files_in_order_in_one_subtask(tmp_path: Path, per_epoch: int) -> None:
    env, sink = environment(2), TestingSink()
    read = env.from_source(write_lines(tmp_path), WatermarkStrategy.no_watermarks(), "lines").set_parallelism(1)
    read.map(WithSubtask()).set_parallelism(1).sink_to(sink).set_parallelism(1)
    run(job_of(env), per_epoch)
    assert sink.values == [(0, line) for line in LINES]


def test_a_record_goes_to_the_same_subtask_behind_a_rebalance_in_whatever_process_it_is_read(tmp_path: Path) -> None:
    source = write_lines(tmp_path)
    commits: list[dict[tuple[int, int], list[Any]]] = []
    for restart_every in (None, 1, 2):
        env, sink = environment(2), TestingSink()
        read = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
        read.rebalance().map(WithSubtask()).sink_to(sink)
        run(job_of(env), 12, restart_every=restart_every)
        commits.append(sink.commits)
    assert sorted(line for values in commits[0].values() for _, line in values) == sorted(LINES)
    assert {subtask for values in commits[0].values() for subtask, _ in values} == {0, 1}
    assert commits[0] == commits[1] == commits[2]
