"""The job of `benchmarks.executors`, once, on a cluster of real executors of one core each. Prints a line of JSON.

    python -m benchmarks.pipelines.executors_job FOLDER EXECUTORS RECORDS

Every result depends on the order of the records of its key, or on the watermarks between them. If the number of
executors changed either, the digest of all results would differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import spark_settings
from flinkish.common import Configuration, Duration, Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.results import NAMED, CollectSink, register_collector
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import KeyedProcessFunction, ProcessWindowFunction, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

PARALLELISM, EPOCHS = 8, 6
#: Time between two records; now and then a user is silent for longer than a session's gap.
STEP_MS, GAP_MS = 10, 2_000
SINKS = ("visits", "windows", "ranks")
CLUSTER_TIMEOUT_S = 120


def event(index: int) -> tuple[str, int, int]:
    """(user, amount, time), determined by the index alone, and out of order by up to a second."""
    drawn = zlib.crc32(f"event {index}".encode())
    return f"user {drawn % 997}", drawn % 1_009, index * STEP_MS - drawn % 1_000


class EventTime(TimestampAssigner):
    """Assigns the event time, the third field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The third field, in milliseconds."""
        time_ms: int = value[2]
        return time_ms


class Visits(KeyedProcessFunction):
    """Emits a user's visit after a period of silence: the number of its records, and a sum that depends on their order
    and on the watermark that each of them saw."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """The state of a user: (records, sum, time of the last one)."""
        self._visit = runtime_context.get_state(ValueStateDescriptor("visit", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        """Count the record, and set a timer for the possible end of the visit."""
        number, total, last_ms = self._visit.value() or (0, 0, 0)
        seen = f"{total} {value[1]} {ctx.timer_service().current_watermark()}"
        self._visit.update((number + 1, zlib.crc32(seen.encode()), max(last_ms, value[2])))
        ctx.timer_service().register_event_time_timer(value[2] + GAP_MS)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """End the visit, unless there was another record since."""
        visit = self._visit.value()
        if visit is not None and timestamp == visit[2] + GAP_MS:
            yield ctx.get_current_key(), *visit
            self._visit.clear()


class Contents(ProcessWindowFunction):
    """Emits the contents of a window, in order."""

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Iterable[Any]) -> Iterator[Any]:
        """(key, end of the window, records, a sum that depends on their order)."""
        amounts = [element[1] for element in elements]
        yield key, context.window().max_timestamp(), len(amounts), zlib.crc32(repr(amounts).encode())


def build(env: StreamExecutionEnvironment, records: int) -> None:
    """Several keyed operators in sequence, with timers, and windows of all three kinds."""
    source = DataGeneratorSource(event, records, records_per_epoch=-(-records // EPOCHS), splits=PARALLELISM)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    events = env.from_source(source, strategy.with_timestamp_assigner(EventTime()), "events").uid("events")
    by_user = events.key_by(lambda one: one[0])
    visits = by_user.process(Visits()).uid("visits")
    visits.sink_to(CollectSink("visits")).uid("sink of visits")
    tumbling = by_user.window(TumblingEventTimeWindows.of(Time.milliseconds(5_000))).process(Contents()).uid("tumbling")
    sliding = events.key_by(lambda one: one[1] % 16).window(
        SlidingEventTimeWindows.of(Time.milliseconds(4_000), Time.milliseconds(2_000))
    )
    sessions = by_user.window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
    tumbling.union(
        sliding.process(Contents()).uid("sliding"),
        sessions.process(Contents()).uid("sessions"),
    ).sink_to(CollectSink("windows")).uid("sink of windows")
    # the largest visits so far, by number of records: keyed by a result of keyed state
    (
        visits.key_by(lambda visit: visit[1])
        .reduce(lambda one, other: (max(one[0], other[0]), one[1], one[2] ^ other[2], max(one[3], other[3])))
        .uid("ranks")
        .sink_to(CollectSink("ranks"))
        .uid("sink of ranks")
    )


def run(folder: Path, executors: int, records: int) -> dict[str, Any]:
    """Run the job on this many executors: seconds from start to end, and the digest of its results."""
    spark = spark_settings.session("flinkish executors", f"local-cluster[{executors},1,1024]")
    _wait_for(spark, executors)
    configuration = Configuration()
    settings = {
        "parallelism.default": PARALLELISM,
        "pipeline.max-parallelism": 4 * PARALLELISM,
        "flinkish.progress": "never",
        "flinkish.history.enabled": "false",
        "flinkish.job.dir": folder / "job",
        "execution.checkpointing.interval": "0",
        **spark_settings.EPOCHS_OF_A_SIZE,
    }
    for key, value in settings.items():
        configuration.set_string(key, str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    results: dict[str, list[Any]] = {name: [] for name in SINKS}
    for name, rows in results.items():
        register_collector(name, NAMED, rows.extend)
    build(env, records)
    begin_s = time.monotonic()
    client: Any = env.execute_async("executors")
    client.get_job_execution_result().result()
    seconds = time.monotonic() - begin_s
    subtasks = [subtask.current for vertex in client.describe().vertices for subtask in vertex.subtasks]
    lines = sorted(f"{name} {row!r}" for name, rows in results.items() for row in rows)
    return {
        "executors": executors,
        "used": len({one.executor for one in subtasks if one.executor is not None}),
        "seconds": round(seconds, 2),
        "epochs": client.run.last_epoch + 1,
        "results": {name: len(rows) for name, rows in results.items()},
        "digest": hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16],
    }


def _wait_for(spark: Any, executors: int) -> None:
    """Wait until all executors have registered: later ones would get no subtask of the first epochs."""
    deadline_s = time.monotonic() + CLUSTER_TIMEOUT_S
    # the list includes the driver
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() <= executors:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{executors} executors have not come within {CLUSTER_TIMEOUT_S} s")
        time.sleep(0.1)


if __name__ == "__main__":
    os.environ.setdefault("FLINKISH_PROGRESS", "never")
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))), flush=True)
