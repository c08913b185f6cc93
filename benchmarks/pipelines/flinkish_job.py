"""flinkish: the main job's pipeline, the windows and the keyed pipelines, over the same files.

Steady: from the end of the warm-up epochs (the JVM and the size of the epochs need about ten) to the end of the last
epoch with data.
The sink upserts into a dictionary in the driver, once per key and epoch, as it would into a database.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import contract
from benchmarks.data import JITTER_MS
from benchmarks.pipelines import keyed_programs
from benchmarks.pipelines.dict_sink import DictSink, delivered
from benchmarks.spark_settings import session
from flinkish.common import Configuration, Duration, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.file_system.source import FileSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import AggregateFunction, ProcessWindowFunction
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport

COLUMNS = {"sum": ("user_id", "logged_in"), "window": ("page", "ts", "amount"), **keyed_programs.COLUMNS}
COLUMN_TYPES = {
    "user_id": Types.STRING(),
    "page": Types.STRING(),
    "ts": Types.LONG(),
    "amount": Types.DOUBLE(),
    "logged_in": Types.BOOLEAN(),
}
EPOCH_RECORDS = {"interval_join": 500_000, "connected": 500_000, "session": 500_000}
"""Smaller epochs for pipelines in which an epoch of four million records would take minutes."""
BOUND_MS = JITTER_MS + 360_000
"""The two files that the subtasks read at a time differ in event time."""


class EventTime(TimestampAssigner):
    """Assigns the event time, the column ts."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The column ts, in milliseconds."""
        ts: int = value[1]
        return ts


class CountAndSum(AggregateFunction):
    """Count and sum of amounts."""

    def create_accumulator(self) -> tuple[int, float]:
        """Zero."""
        return (0, 0.0)

    def add(self, value: Any, accumulator: tuple[int, float]) -> tuple[int, float]:
        """Add an event."""
        return (accumulator[0] + 1, accumulator[1] + value[2])

    def get_result(self, accumulator: tuple[int, float]) -> tuple[int, float]:
        """The accumulator itself."""
        return accumulator

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        """Add two accumulators."""
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class WithWindow(ProcessWindowFunction):  # type: ignore[type-arg]
    """Emits ((page, window start), result)."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        """One result per window."""
        for result in elements:
            yield ((key, context.window().start), result)


def clicks(env: Any, columns: tuple[str, ...], paths: list[Path]) -> Any:
    """The stream of these columns of all files in the folders of ``paths``."""
    folders = sorted({str(path.parent) for path in paths})
    types = Types.TUPLE([COLUMN_TYPES[name] for name in columns])
    source = FileSource.parquet(*folders, type_info=types, columns=list(columns))
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "files")


def build(env: Any, pipeline: str, paths: list[Path]) -> None:
    """The program, as a user would write it."""
    events = clicks(env, COLUMNS[pipeline], paths)
    if pipeline == "sum":
        (
            events.filter(lambda event: event[1])
            .map(lambda event: (event[0], 1))
            .key_by(lambda pair: pair[0])
            .reduce(lambda left, right: (left[0], left[1] + right[1]))
            .sink_to(DictSink())
        )
        return
    if pipeline in contract.KEYED_PIPELINES:
        bound_ms = keyed_programs.BOUND_MS.get(pipeline, BOUND_MS)
        results = keyed_programs.add("flinkish", pipeline, events, bound_ms)
        results.map(lambda result: (result[:2], result[2:])).sink_to(DictSink())
        return
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    (
        events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(EventTime()))
        .key_by(lambda event: event[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(contract.WINDOW_MS)))
        .aggregate(CountAndSum(), WithWindow())
        .sink_to(DictSink())
    )


def environment(epoch_records: int) -> Any:
    """Two subtasks, a new job directory, and epochs of at most this many records, sized as by default."""
    configuration = Configuration()
    configuration.set_string("flinkish.job.dir", tempfile.mkdtemp(prefix="flinkish-benchmark-"))
    configuration.set_string("execution.checkpointing.interval", "0")
    configuration.set_string("flinkish.epoch.max-records-per-source", str(epoch_records))
    configuration.set_string("flinkish.epoch.max-bytes-per-source", "4gb")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    return env


def in_a_folder(paths: list[Path]) -> list[Path]:
    """Copies of the files in a new folder, in the same order in time, because the source reads whole folders."""
    folder = tempfile.mkdtemp(prefix="flinkish-benchmark-files-")
    return [Path(shutil.copy2(path, folder)) for path in paths]


class Marks(JobObserver):
    """Marks the meter at the end of the warm-up and of the last epoch with data."""

    def __init__(self, meter: contract.Meter, warm_up: int) -> None:
        self._meter = meter
        self._warm_up = warm_up
        self._epochs = 0
        self._events = 0
        self.first = meter.mark(0)
        self.last = self.first
        self.times: list[tuple[int, float]] = []

    def epoch_done(self, report: EpochReport) -> None:
        """Called after each epoch."""
        if not report.records_in:
            return
        self._epochs += 1
        self._events += report.records_in
        mark = self._meter.mark(self._events)
        self.times.append((report.records_in, mark.wall_s))
        if self._epochs == self._warm_up:
            self.first = mark
        self.last = mark


def main() -> None:
    """Run one pipeline."""
    parser = contract.argument_parser("flinkish")
    parser.add_argument("--epoch-records", type=int)
    parser.add_argument("--warm-up-epochs", type=int, default=10)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.epoch_records = options.epoch_records or EPOCH_RECORDS.get(options.pipeline, 4_000_000)
    paths = contract.files_of(options)
    if options.files:
        paths = in_a_folder(paths)
    meter = contract.Meter()
    session("flinkish-benchmark")
    env = environment(options.epoch_records)
    build(env, options.pipeline, paths)
    marks = Marks(meter, options.warm_up_epochs)
    started = time.perf_counter()
    client = env.execute_async(f"benchmark-{options.pipeline}")
    client.run.observers.append(marks)  # type: ignore[attr-defined]
    client.get_job_execution_result().result()
    if options.verbose:
        for progress in client.run.attempt._query.of_spark.recentProgress:  # type: ignore[attr-defined]
            print(progress["batchId"], progress["numInputRows"], progress["durationMs"])
        before = started
        for records, wall_s in marks.times:
            print(f"epoch of {records}: {wall_s - before:.2f} s, {records / (wall_s - before):,.0f}/s")
            before = wall_s
    steady = f"after {options.warm_up_epochs} epochs of at most {options.epoch_records} records"
    contract.emit(meter.result(marks.first, marks.last, steady, _check(options.pipeline)))


def _check(pipeline: str) -> dict[str, Any]:
    if pipeline == "sum":
        return contract.sum_check(
            {user: pair if isinstance(pair, int) else pair[1] for user, pair in delivered.items()}
        )
    counts = list(delivered.values())
    check = contract.window_check(len(counts), sum(c for c, _ in counts), sum(a for _, a in counts))
    return keyed_programs.checked(pipeline, check)


if __name__ == "__main__":
    main()
