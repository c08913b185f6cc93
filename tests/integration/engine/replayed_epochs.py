"""A job of three epochs with state, timers of both kinds and windows, the last one of which fails. A program of its own
for the console command, too: ``replayed_epochs.py JOB_DIR COMMITS``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flinkish.common import Configuration, Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.testing import End, Pause, StreamRecord, TestingSource, Watermark

POISON = -1


class CommitFiles(WriterSink):
    """Writes what is committed to ``<folder>/<epoch>-<subtask>.json``."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create_writer(self) -> SinkWriter:
        return _Writer(self._folder)

    def create_committer(self) -> Committer:
        return _Committer(self._folder)


class _Writer(SinkWriter):
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._held: list[Any] = []

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        (Path(self._folder) / "written").touch()
        self._held += map(repr, values)
        return []

    def prepare_commit(self) -> list[Any]:
        held, self._held = self._held, []
        return held


class _Committer(Committer):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        values = [value for batch in committables for value in batch]
        (Path(self._folder) / f"{context.epoch}-{context.subtask}.json").write_text(json.dumps(values))
        return len(values)


class Totals(KeyedProcessFunction):
    """(key, number) -> (key, sum so far); timers of both kinds tell the sum again. The poison is refused."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        key, number = value
        if number == POISON:
            raise ValueError(f"poison for {key}")
        self.total.update((self.total.value() or 0) + number)
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + 15)
        timers.register_processing_time_timer(timers.current_processing_time() + 1)
        yield key, self.total.value()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield f"{ctx.get_current_key()} at {timestamp}, {ctx.time_domain().name}", self.total.value()


def program(job_dir: str, commits: str) -> StreamExecutionEnvironment:
    """Epochs 0 and 1 are committed, epoch 2 fails."""
    configuration = Configuration()
    for key, value in {
        "flinkish.job.dir": job_dir,
        "parallelism.default": "2",
        "pipeline.max-parallelism": "4",
        "flinkish.progress": "never",
        "flinkish.history.enabled": "false",
        # keyed state lies in files
        "flinkish.state.inline-size": "0",
        "execution.checkpointing.interval": "0 s",
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    elements: list[Any] = []
    for start, watermark in ((0, 5), (10, 25)):
        elements += [StreamRecord((f"k{number % 5}", number), start + number) for number in range(8)]
        elements += [Watermark(watermark), Pause()]
    elements += [StreamRecord(("k3", POISON), 50), End()]
    source = TestingSource(*elements)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").uid("records")
    totals = records.key_by(lambda value: value[0]).process(Totals()).uid("totals")
    windows = records.key_by(lambda value: value[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    sums = windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
    totals.union(sums).sink_to(CommitFiles(commits)).name("out").uid("out")
    return env


if __name__ == "__main__":
    program(*sys.argv[1:]).execute("replayed")
