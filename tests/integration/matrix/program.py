"""The program of the matrix: source -> map -> {rebalance -> map -> sink, key by -> running count -> sink}.

Both sinks are exactly-once and write to the same place. The program has two subtasks and small epochs. It may be
upgraded in its directory: its sinks are those of another row of ``SINKS_OF``. A mishap may be
planned for a run: at the first record behind a share of the input that comes to subtask 1 behind ``rebalance()``, once
the other subtask has had such a record too, it fails, or it stands still until it is let go on.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flinkish.common import WatermarkStrategy
from flinkish.common.serialization import Encoder
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.sink import FileSink
from flinkish.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from tests.integration.engine.collecting import environment
from tests.integration.matrix.records import Record, counted, key_of, rebalanced
from tests.integration.matrix.sinks import SINKS
from tests.integration.matrix.sources import SOURCES

#: About five epochs for 77 records.
RECORDS_PER_EPOCH = 16
#: So late fails a subtask that the other one has long been through with the epoch.
LATE_S = 2.0
HOLD_S = 300
RESTARTS = {
    "restart_strategy__type": "fixed-delay",
    "restart_strategy__fixed_delay__attempts": "3",
    "restart_strategy__fixed_delay__delay": "10 ms",
}
#: With less than two cores the other subtask never comes while this one waits.
OTHER_SUBTASK_S = 5.0

#: Program -> (branch, uid) of each of its sinks, in their order. A sink that is not of the first program has a place of
#: its own, so that what it gets is told apart.
SINKS_OF = {
    "first": [("rebalanced", "sink of rebalanced"), ("keyed", "sink of keyed")],
    "added": [("keyed", "added"), ("rebalanced", "sink of rebalanced"), ("keyed", "sink of keyed")],
    "removed": [("keyed", "sink of keyed")],
    "swapped": [("keyed", "sink of keyed"), ("rebalanced", "sink of rebalanced")],
    "renamed": [("rebalanced", "renamed"), ("keyed", "sink of keyed")],
}


class Mishap(Exception):
    """The failure of the matrix's user code."""


@dataclass(frozen=True)
class PlannedMishap:
    """What happens to one run of the program.

    Args:
        how: ``raise``: at each such record, also when a task is tried again; ``hold``: stand still, once.
        share: of the input behind which it happens.
    """

    how: str
    share: float = 0.4

    @property
    def message(self) -> str:
        """Of the error with which it fails."""
        return f"the mishap behind {self.share} of the input"

    def mark(self, folder: Path) -> Path:
        """The file with the id of the process that holds; empty until it does."""
        return folder / "held"

    def let_go(self, folder: Path) -> None:
        """Who holds need not hold any more."""
        (folder / "go on").touch()

    def pass_by(self, folder: Path) -> None:
        """The record at which it happens has come."""
        _wait_for(folder / "subtask 0", OTHER_SUBTASK_S)
        if self.how == "raise":
            time.sleep(LATE_S)
            raise Mishap(self.message)
        try:
            mark = os.open(self.mark(folder), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        os.write(mark, f"{os.getpid()}\n".encode())
        os.close(mark)
        if not _wait_for(folder / "go on", HOLD_S):
            raise Mishap(f"nobody has let it go on for {HOLD_S} s")


def _wait_for(path: Path, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@dataclass(frozen=True)
class Cell:
    """One source, one sink, and where everything of one job is.

    Args:
        folder: holds the job directory and the marks of mishaps.
        input_place: of the source, ``output_place``: of the sink.
        kafka_servers: the addresses of both.
        records_per_epoch: the bound of an epoch.
        program: which one of ``SINKS_OF``.
        settings: of the job, beyond those of all.
    """

    folder: str
    source: str
    sink: str
    input_place: str
    output_place: str
    kafka_servers: str
    records_per_epoch: int = RECORDS_PER_EPOCH
    program: str = "first"
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def job_directory(self) -> Path:
        """The directory of the job."""
        return Path(self.folder) / "job"

    @property
    def added_place(self) -> Path:
        """The folder of the sink that is added to the program."""
        return Path(self.folder) / "added"


class PassBy(MapFunction):
    """Gives the output of the branch without keys, and has the mishap."""

    def __init__(self, cell: Cell, mishap: PlannedMishap | None) -> None:
        self._cell, self._folder, self._mishap = cell, Path(cell.folder), mishap

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Record) -> Any:
        if self._mishap is not None and SOURCES[self._cell.source].is_behind(value, self._mishap.share):
            if self._subtask == 0:
                (self._folder / "subtask 0").touch()
            else:
                self._mishap.pass_by(self._folder)
        return SINKS[self._cell.sink].encode(rebalanced(value))


class RunningCount(MapFunction):
    """Gives the output of the keyed branch."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Record) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        return SINKS[self._cell.sink].encode(counted(value, count))


def build(cell: Cell, mishap: PlannedMishap | None = None) -> StreamExecutionEnvironment:
    """The environment with the program."""
    source, sink = SOURCES[cell.source], SINKS[cell.sink]
    # whoever stands still is killed: Spark may be able to make up for it within the epoch, or the job begins it anew
    restarts = RESTARTS if mishap is not None and mishap.how == "hold" else {}
    bound = {"flinkish.epoch.max-records-per-source": cell.records_per_epoch}
    env = environment(cell.job_directory, **{**bound, **restarts, **cell.settings})
    read = env.from_source(
        source.create(cell.input_place, cell.kafka_servers), WatermarkStrategy.no_watermarks(), "records"
    ).uid("records")
    records = read.map(source.record_of)
    branches = {
        "rebalanced": records.rebalance().map(PassBy(cell, mishap), sink.input_type),
        "keyed": records.key_by(key_of).map(RunningCount(cell), sink.input_type),
    }
    for name, outputs in branches.items():
        outputs.uid(name)
    for name, uid in SINKS_OF[cell.program]:
        if uid == "added":
            written = FileSink.for_row_format(str(cell.added_place), Encoder.simple_string_encoder()).build()
        else:
            written = sink.create(cell.output_place, cell.kafka_servers, name)
        branches[name].sink_to(written).uid(uid)
    return env


def run(cell: Cell, mishap: PlannedMishap | None = None) -> None:
    """Runs the program in the Spark session of this process."""
    build(cell, mishap).execute("matrix")
