"""PyFlink's DataStream API on a local cluster of two slots, tuned.

The source is the fastest available to Python programs: numbers of slices, and a `flat_map` that reads each slice.
PyFlink chains it with filter, map and key selector in one Python process, and the sink with the reducer, so each event
goes from Python to Java once and back. Steady: a longer run minus a shorter one, in one process, after a first one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import sysconfig
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import Duration, TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.window import TumblingEventTimeWindows

from benchmarks import contract
from benchmarks.data import EVENTS_PER_FILE, JITTER_MS
from benchmarks.pipelines import keyed_programs

PARALLELISM = 2
SLICE_EVENTS = 5_000
COLUMNS = {"sum": ("user_id", "logged_in"), "window": ("page", "ts", "amount"), **keyed_programs.COLUMNS}
COLUMN_TYPES = {
    "user_id": Types.STRING(),
    "page": Types.STRING(),
    "ts": Types.LONG(),
    "amount": Types.DOUBLE(),
    "logged_in": Types.BOOLEAN(),
}


class ReadSlice(FlatMapFunction):  # type: ignore[misc]
    """Number of a slice -> its events as tuples."""

    def __init__(self, slices: list[tuple[str, int]], columns: tuple[str, ...]) -> None:
        self._slices, self._columns = slices, columns
        self._read: tuple[str, Any] = ("", None)

    def flat_map(self, value: int) -> Iterator[Any]:
        """Reads each file once, since slices of one file come one after the other."""
        path, begin = self._slices[value]
        if self._read[0] != path:
            self._read = (path, pq.read_table(path, columns=list(self._columns)))
        part = self._read[1].slice(begin, SLICE_EVENTS)
        return zip(*(column.to_pylist() for column in part.columns), strict=True)


class DictSink(FilterFunction):  # type: ignore[misc]
    """Upserts into a dictionary in the Python worker and emits nothing; saves its figures at the end."""

    def __init__(self, pipeline: str, directory: str) -> None:
        self._pipeline, self._directory = pipeline, directory
        self._found: dict[Any, Any] = {}

    def filter(self, value: Any) -> bool:
        """Take one value."""
        if self._pipeline == "sum":
            self._found[value[0]] = value[1]
        else:
            self._found[value[0], value[1]] = value[2:]
        return False

    def close(self) -> None:
        """Save the figures."""
        values = list(self._found.values())
        if self._pipeline == "sum":
            figures: dict[str, Any] = contract.sum_check(self._found)
        else:
            figures = contract.window_check(len(values), sum(v[0] for v in values), sum(v[1] for v in values))
            figures = keyed_programs.checked(self._pipeline, figures)
        Path(self._directory, f"{uuid.uuid4().hex}.json").write_text(json.dumps(figures))


class ClickTime(TimestampAssigner):  # type: ignore[misc]
    """Assigns the event time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Epoch milliseconds."""
        return int(value[1])


class CountAndAmount(AggregateFunction):  # type: ignore[misc]
    """Count and sum of amounts."""

    def create_accumulator(self) -> tuple[int, float]:
        """Zero."""
        return 0, 0.0

    def add(self, value: Any, accumulator: tuple[int, float]) -> tuple[int, float]:
        """Add an event."""
        return accumulator[0] + 1, accumulator[1] + value[2]

    def get_result(self, accumulator: tuple[int, float]) -> tuple[int, float]:
        """The accumulator itself."""
        return accumulator

    def merge(self, left: tuple[int, float], right: tuple[int, float]) -> tuple[int, float]:
        """Add two accumulators."""
        return left[0] + right[0], left[1] + right[1]


class WithWindow(ProcessWindowFunction):  # type: ignore[misc]
    """Adds the page and the start of the window."""

    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        """One row per window."""
        for count, amount in elements:
            yield key, context.window().start, count, amount


def environment(mode: str, state_cache_size: int, bundle_size: int = 100_000, bundle_ms: int = 1_000) -> Any:
    """Two slots, and the fastest settings of those tried."""
    configuration = Configuration()
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.fn-execution.bundle.size", str(bundle_size))
    configuration.set_string("python.fn-execution.bundle.time", str(bundle_ms))
    configuration.set_string("python.state.cache-size", str(state_cache_size))
    configuration.set_string("taskmanager.numberOfTaskSlots", str(PARALLELISM))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(PARALLELISM)
    return env


def find_packages_in_thread_mode() -> None:
    """Call this first in thread mode: the JVM embeds an interpreter that does not know of virtual environments."""
    search_path = [os.environ.get("PYTHONPATH", ""), sysconfig.get_paths()["purelib"]]
    os.environ["PYTHONPATH"] = os.pathsep.join(search_path)


def clicks(env: Any, columns: tuple[str, ...], paths: list[Path], events: int) -> Any:
    """The stream of these columns of the first ``events`` events of the files."""
    slices = [
        (str(paths[begin // EVENTS_PER_FILE]), begin % EVENTS_PER_FILE) for begin in range(0, events, SLICE_EVENTS)
    ]
    # The source gives each subtask half of the numbers: every second slice, so that both advance through event time
    # together. If a subtask read later slices before earlier ones, the earlier ones would be late.
    slices = slices[0::2] + slices[1::2]
    source = NumberSequenceSource(0, len(slices) - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "slices", Types.LONG())
    types = Types.TUPLE([COLUMN_TYPES[name] for name in columns])
    return numbers.flat_map(ReadSlice(slices, columns), types)


def build(env: StreamExecutionEnvironment, pipeline: str, paths: list[Path], directory: str) -> None:
    """Declare the job of one pipeline."""
    events = clicks(env, COLUMNS[pipeline], paths, len(paths) * EVENTS_PER_FILE)
    if pipeline == "sum":
        results = (
            events.filter(lambda event: event[1])
            .map(lambda event: (event[0], 1), Types.TUPLE([Types.STRING(), Types.LONG()]))
            .key_by(lambda one: one[0], Types.STRING())
            .reduce(lambda left, right: (left[0], left[1] + right[1]))
        )
    elif pipeline in contract.KEYED_PIPELINES:
        bound_ms = keyed_programs.BOUND_MS.get(pipeline, JITTER_MS)
        results = keyed_programs.add("pyflink", pipeline, events, bound_ms)
    else:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(JITTER_MS))
        results = (
            events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ClickTime()))
            .key_by(lambda event: event[0], Types.STRING())
            .window(TumblingEventTimeWindows.of(Time.milliseconds(contract.WINDOW_MS)))
            .aggregate(
                CountAndAmount(),
                WithWindow(),
                Types.TUPLE([Types.LONG(), Types.DOUBLE()]),
                Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]),
            )
        )
    results.filter(DictSink(pipeline, directory)).print()


def run(options: argparse.Namespace, paths: list[Path]) -> dict[str, Any]:
    """Run one job over `paths`; returns the figures of both subtasks together."""
    with tempfile.TemporaryDirectory() as directory:
        env = environment(options.mode, max(1_000, options.users), options.bundle_size, options.bundle_ms)
        build(env, options.pipeline, paths, directory)
        env.execute(options.pipeline)
        figures = [json.loads(path.read_text()) for path in Path(directory).glob("*.json")]
    merged = {name: sum(figure[name] for figure in figures) for name in figures[0]} if figures else {}
    if "highest" in merged:
        merged["highest"] = max(figure["highest"] for figure in figures)
    return merged


def main() -> None:
    """Run one pipeline and print its figures."""
    parser = contract.argument_parser(__doc__ or "")
    parser.add_argument("--mode", choices=("process", "thread"), default="process")
    parser.add_argument("--bundle-size", type=int, default=100_000)
    parser.add_argument("--bundle-ms", type=int, default=1_000)
    options = parser.parse_args()
    find_packages_in_thread_mode()
    paths = contract.files_of(options)
    short = paths[: max(2, len(paths) // 3)]
    meter = contract.Meter()
    run(options, paths[:2])
    marks = [meter.mark(0)]
    for part in (short, paths):
        check = run(options, part)
        marks.append(meter.mark(marks[-1].events + len(part) * EVENTS_PER_FILE))
    contract.emit(meter.difference(marks[0], marks[1], marks[2], check))


if __name__ == "__main__":
    main()
