"""The big job: two sources, their union, four stateful operators, timers, windows with lateness, two kinds of sinks.

    python job.py '{"folder": ..., "job": ..., "settings": {...}, "program": {...}, "stop_at": ..., "drain": ...}'

``folder`` holds everything: the table (made by `outputs.make_table`), files/<job>/, and job directories. ``settings``:
of the environment, as in `settings()` of the engine's tests. ``program``: fields of `Program`. ``stop_at``: when that
many rows are in the table, stop with a savepoint (``drain``: after the end of time) and print where it is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flinkish.common import Row, Time, WatermarkStrategy
from flinkish.common.serialization import Encoder
from flinkish.common.time import Duration
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.sink import FileSink
from flinkish.connectors.file_system.sink_options import BucketAssigner, OutputFileConfig
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.core.sink import Sink
from flinkish.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from flinkish.datastream.window import TumblingEventTimeWindows
from tests.integration.engine.collecting import environment
from tests.integration.exactness import events
from tests.integration.exactness.functions import Firings, Numbered, OutputRow, Sessions, firing_output, total
from tests.integration.exactness.mishaps import Mishaps
from tests.integration.exactness.outputs import rows_so_far
from tests.support.processes import wait_until

TOO_LATE = OutputTag("too late", Types.PICKLED_BYTE_ARRAY())
OUTPUT = Types.ROW_NAMED(
    ["lane", "id", "number", "life", "content"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.STRING(), Types.STRING()],
)
NAME = "exactness"
HOLD_S = 300


@dataclass(frozen=True)
class Program:
    """The program and where it writes. ``run``: the name of this job's directory and of its folder of files."""

    folder: Path
    run: str = "job"
    mishaps: Mishaps = Mishaps()
    #: seconds that an epoch takes at least, for tests that must meet a job at work
    slow_s: float = 0
    #: epochs that wait until a test lets them go on (`let_go`)
    holds: tuple[int, ...] = ()
    #: of each source
    records: int = events.RECORDS
    per_epoch: int = events.PER_EPOCH
    #: for tests that break the sink
    database: Callable[[Path], Sink] | None = None

    def build(self, env: StreamExecutionEnvironment) -> None:
        """Everything."""
        both = self._source(env, "a").union(self._source(env, "b"))
        keyed = both.key_by(lambda e: e.key)
        sessions = keyed.process(Sessions(self.mishaps)).uid("sessions")
        rows = sessions.map(partial(_to_row, self.mishaps), OUTPUT)
        rows.sink_to((self.database or database)(self.folder)).uid("database")
        firings = (
            keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(events.WINDOW_MS)))
            .allowed_lateness(events.LATENESS_MS)
            .side_output_late_data(TOO_LATE)
            .process(Firings(self.mishaps))
            .uid("windows")
        )
        totals = firings.key_by(lambda f: f[0]).reduce(partial(_total, self.mishaps)).uid("totals")
        self._into_files(totals.map(firing_output), "windows")
        late = firings.get_side_output(TOO_LATE).key_by(lambda e: e.key).process(Numbered()).uid("too late")
        self._into_files(late, "late")

    def _source(self, env: StreamExecutionEnvironment, name: str) -> DataStream:
        source = DataGeneratorSource(
            partial(_event, name, self),
            self.records,
            records_per_epoch=self.per_epoch,
            splits=events.SPLITS,
        )
        in_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(events.OUT_OF_ORDER_MS))
        return env.from_source(source, in_time.with_timestamp_assigner(events.EventTime()), name).uid(f"source {name}")

    def _into_files(self, stream: DataStream, prefix: str) -> None:
        name = OutputFileConfig.builder().with_part_prefix(prefix).build()
        path = str(self.folder / "files" / self.run)
        sink = FileSink.for_row_format(path, Encoder.simple_string_encoder())
        sink = sink.with_output_file_config(name).with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        stream.map(json.dumps, Types.STRING()).sink_to(sink.build()).uid(f"files of {prefix}")


def database(folder: Path) -> Sink:
    """The sink of the sessions."""
    url = f"jdbc:sqlite:{folder / 'out.db'}"
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()
    return JdbcSink.sink("INSERT INTO outputs VALUES (?, ?, ?, ?, ?)", OUTPUT, options)


def _event(source: str, program: Program, index: int) -> events.Event:
    epoch, place = divmod(index, program.per_epoch)
    if source == "a" and place == 0:
        time.sleep(program.slow_s)
        if epoch in program.holds:
            wait_until(_gate(program, epoch).exists, HOLD_S, f"epoch {epoch} to be let go")
    program.mishaps.pass_by("source", f"{source}{index}")
    return events.event(source, index)


def _gate(program: Program, epoch: int) -> Path:
    return program.folder / f"go-{program.run}-{epoch}"


def let_go(program: Program, epoch: int) -> None:
    """An epoch that is held may go on."""
    _gate(program, epoch).touch()


def _to_row(mishaps: Mishaps, output: OutputRow) -> Row:
    mishaps.pass_by("rows", output[1])
    return Row(*output)


def _total(mishaps: Mishaps, before: Any, firing: Any) -> Any:
    mishaps.pass_by("totals", f"{firing[0]}@{firing[1]}#{firing[2]}")
    return total(before, firing)


def build(program: Program, **settings: Any) -> StreamExecutionEnvironment:
    """The environment with the program, in the job directory of its name."""
    env = environment(program.folder / program.run, **settings)
    program.build(env)
    return env


def main(options: dict[str, Any]) -> None:
    """One run in a driver of its own."""
    from tests.support.spark_session import start_session

    folder = Path(options["folder"])
    start_session(folder / f"spark-{time.time_ns()}")
    program = Program(folder, options.get("job", "job"), **options.get("program", {}))
    env = build(program, **options.get("settings", {}))
    client = env.execute_async(NAME)
    print("started", flush=True)
    if "stop_at" in options:
        # at work: a driver that was killed while it stopped does something before it stops again
        least = max(options["stop_at"], rows_so_far(folder) + 1)
        ended = client.get_job_execution_result().done
        while rows_so_far(folder) < least and not ended():
            time.sleep(0.05)
        if not ended():
            stopped = client.stop_with_savepoint(options.get("drain", False), str(folder / "savepoints"))
            print("savepoint", stopped.result(), flush=True)
    client.get_job_execution_result().result()
    print("finished", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
