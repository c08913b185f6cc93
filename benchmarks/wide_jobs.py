"""The cost of wide jobs: W subtasks of a source send by key to W subtasks with keyed windows, which send by key to W.

``python -m benchmarks.wide_jobs [--subtasks 4 40 400] [--max-parallelism 128 0]`` (0: four per subtask) runs only the
runtime in one process, without Spark and without a cluster, on real buffers: the chains of the tasks, record writers,
gates, valves, keyed state with its files, headers. Every subtask of the source runs in each epoch and sends 10,000
records, so the receivers have all their real inputs. Only `RECEIVERS` of the W receivers run, since they are alike;
buffers for the others are counted and discarded.

Each sender draws from its own 1,000 users at any width, so only the width itself grows with W. All senders are equally
far in event time. In the lines marked "apart" they are a millisecond apart from each other: the combined watermark of a
receiver then rises with every watermark of every sender, and operators get few records between two of them. The bounds
apply to the other lines.

It prints processor time: microseconds per record of sender and receiver together; milliseconds per subtask and epoch,
including header and valve (decoding and encoding the header, and all calls of the valve, repeated on a valve in the
state of the begin of the epoch); and the time to compute the addresses that every process needs.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from flinkish.common import Configuration, Duration, Time, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import AggregateFunction
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.submitted_program import captured
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.exchange.buffer import Buffer, decode
from flinkish.runtime.exchange.gate import InputGate, SortedBuffers
from flinkish.runtime.exchange.valve import WatermarkValve
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import Row, TaskHeader
from flinkish.runtime.task.source_task import SourceInput, SplitBatch
from flinkish.runtime.task.task import EpochStamp
from flinkish.runtime.task.task_manager import StoredTask, TaskManager
from flinkish.spark.place import AddressBook, partitions_of
from flinkish.spark.worker import THRESHOLD

#: Records that a source subtask sends per epoch, and the size of its batches, the default of sources.
RECORDS, BATCH = 10_000, 1_000
#: Number of epochs; the first one adds every key and is not counted.
EPOCHS = 4
#: Number of receiver subtasks that run.
RECEIVERS = 3
USERS_PER_SENDER = 1_000
#: Span of event time of an epoch, and of a window.
SPAN_MS = 10_000
SOURCE, KEYED, LAST = 0, 1, 2

#: Bounds: cost of a record in the widest job relative to the narrowest one, header and valve, addresses.
BOUNDS = {"cost per record": 2.0, "header and valve, ms": 10.0, "addresses, ms": 50.0}


class EventTime(TimestampAssigner):
    """Assigns the event time, the second field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The second field, in milliseconds."""
        ts: int = value[1]
        return ts


class Count(AggregateFunction):
    """Counts records of (user, time)."""

    def create_accumulator(self) -> int:
        """Zero."""
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        """Add one."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """The count."""
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        """The count of two windows together."""
        return acc_a + acc_b


def job_of(subtasks: int, max_parallelism: int) -> JobDescriptor:
    """The job graph of the program, with this many subtasks on each of its three levels."""

    def program() -> None:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        env.set_parallelism(subtasks)
        env.set_max_parallelism(max_parallelism)
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
        (
            # `Simulation` supplies the input of these subtasks
            env.from_source(NumberSequenceSource(0, 2**40, subtasks), WatermarkStrategy.no_watermarks(), "numbers")
            .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(EventTime()))
            .key_by(lambda event: event[0])
            .window(TumblingEventTimeWindows.of(Time.milliseconds(SPAN_MS)))
            .aggregate(Count())
            .key_by(lambda count: count)
            .reduce(max)
            .print()
        )
        env.execute("wide job")

    submitted = captured(program)
    generator = JobGraphGenerator(submitted.graph, job_settings(submitted.configuration), submitted.chaining)
    return generator.generate("wide-job", submitted.name)


@dataclass
class Epoch:
    """Processor time of the tasks that ran in an epoch, and what they did."""

    send_s: float = 0.0
    receive_s: float = 0.0
    #: for the receivers: decoding buffers and ordering them by time, without operators
    gate_s: float = 0.0
    #: for the receivers: header and valve
    header_and_valve_s: float = 0.0
    buffers_per_sender: float = 0.0
    #: size in bytes of the stored header of a receiver
    header_bytes: int = 0
    #: average number of buffers that the receivers that ran have sent on
    buffers_sent_on: float = 0.0


class RecordingValve(WatermarkValve):
    """A valve that records the calls of its methods."""

    def __init__(self, combined_ms: int) -> None:
        super().__init__(combined_ms)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def add(self, name: Any, *arguments: Any, **options: Any) -> None:
        """Record the call."""
        self.calls.append(("add", (name, *arguments), options))
        super().add(name, *arguments, **options)

    def lowest_ms(self, except_for: Collection[Any]) -> int:
        """Record the call."""
        self.calls.append(("lowest_ms", (except_for,), {}))
        return super().lowest_ms(except_for)

    def raise_to(self, watermark_ms: int) -> bool:
        """Record the call."""
        self.calls.append(("raise_to", (watermark_ms,), {}))
        return super().raise_to(watermark_ms)

    def advance_all(self, watermarks_ms: Mapping[Any, int]) -> None:
        """Record the call."""
        self.calls.append(("advance_all", (watermarks_ms,), {}))
        super().advance_all(watermarks_ms)

    def advance(self, name: Any, watermark_ms: int) -> bool:
        """Record the call."""
        self.calls.append(("advance", (name, watermark_ms), {}))
        return super().advance(name, watermark_ms)

    def set_idle(self, name: Any, idle: bool) -> bool:
        """Record the call."""
        self.calls.append(("set_idle", (name, idle), {}))
        return super().set_idle(name, idle)


class Simulation:
    """A job with this many subtasks on each level, run epoch by epoch."""

    def __init__(
        self, subtasks: int, max_parallelism: int, directory: str, records: int = RECORDS, apart: bool = False
    ) -> None:
        self.job = job_of(subtasks, max_parallelism)
        self._apart_ms = int(apart)
        self._records = records
        self._subtasks = subtasks
        files = EpochFiles(f"{directory}/prepared", f"{directory}/changelog", f"{directory}/keyed-state")
        self._manager = TaskManager(self.job, files)
        self._stored: dict[int, tuple[bytes, bytes | None]] = {}
        self._random = random.Random(0)
        #: the receivers that run, evenly distributed
        self.receivers = sorted({number * subtasks // RECEIVERS for number in range(RECEIVERS)})
        self._epoch = 0

    def close(self) -> None:
        """Close all tasks."""
        self._manager.dispose()

    def run_epoch(self) -> Epoch:
        """Run all senders, then the chosen receivers."""
        figures, arrived = Epoch(), {receiver: list[bytes]() for receiver in self.receivers}
        stamp = EpochStamp(self._epoch, self._epoch * SPAN_MS)
        buffers = 0
        for sender in range(self._subtasks):
            given = SourceInput(self._batches(sender))
            begin_s = time.process_time()
            rows: list[Row] = []
            for part in self._manager.run_source(SOURCE, sender, given, stamp):
                rows.extend(part)
            figures.send_s += time.process_time() - begin_s
            for vertex, subtask, data in rows:
                buffers += vertex == KEYED
                if vertex == KEYED and subtask in arrived:
                    arrived[subtask].append(data)
        figures.buffers_per_sender = buffers / self._subtasks
        for receiver, datas in arrived.items():
            self._receive(receiver, sorted(datas), stamp, figures)
        self._epoch += 1
        return figures

    def _batches(self, sender: int) -> list[SplitBatch]:
        """The records of a sender in an epoch, created in advance."""
        users = [f"u{sender}-{number}" for number in range(USERS_PER_SENDER)]
        batches = []
        for begin in range(0, self._records, BATCH):
            names = self._random.choices(users, k=min(BATCH, self._records - begin))
            first_ms = self._epoch * SPAN_MS + begin * SPAN_MS // self._records + sender * self._apart_ms
            batches.append(
                SplitBatch(str(sender), [(name, first_ms + at % 900) for at, name in enumerate(names)], None)
            )
        return batches

    def _receive(self, receiver: int, datas: list[bytes], stamp: EpochStamp, figures: Epoch) -> None:
        header, body = self._stored.get(receiver, (None, None))
        begin_s = time.process_time()
        # read on arrival, as Spark delivers them
        buffers = (decode(data) for data in datas)
        result, rows = self._manager.run_task(KEYED, receiver, StoredTask(header, lambda: body), buffers, stamp)
        assert result is not None
        encoded = result.header.encode(self.job.classes)
        figures.receive_s += time.process_time() - begin_s
        self._stored[receiver] = encoded, result.body if result.body_written else body
        figures.header_bytes = len(encoded)
        figures.buffers_sent_on += sum(vertex == LAST for vertex, _, _ in rows) / len(self.receivers)
        if header is not None:
            self._measure_gate(receiver, header, result.header, [decode(data) for data in datas], figures)

    def _measure_gate(
        self, receiver: int, header: bytes, after: TaskHeader, buffers: list[Buffer], figures: Epoch
    ) -> None:
        """Measure again without operators: the gate, and then header and valve alone."""
        before = TaskHeader.decode(header)
        gate = self._gate(receiver, before, buffers)
        begin_s = time.process_time()
        for _ in gate.steps():
            pass
        progress = gate.progress()
        figures.gate_s += time.process_time() - begin_s
        assert progress == after.origins, "the gate does not do again what it did"
        gate, valve = self._gate(receiver, before, buffers), RecordingValve(before.watermark_ms)
        gate.valve = valve
        for _ in gate.steps():
            pass
        begin_s = time.process_time()
        TaskHeader.decode(header, "", self.job.classes)
        again = WatermarkValve(before.watermark_ms)
        for name, arguments, options in valve.calls:
            getattr(again, name)(*arguments, **options)
        after.encode(self.job.classes)
        figures.header_and_valve_s += time.process_time() - begin_s
        assert again.combined_ms == after.watermark_ms, "the valve does not do again what it did"

    def _gate(self, receiver: int, header: TaskHeader, buffers: list[Buffer]) -> InputGate:
        inputs = self.job.vertex(KEYED).inputs
        gate = InputGate(inputs, header.origins, header.watermark_ms, header.idle, self._epoch * SPAN_MS, receiver)
        gate.receive(SortedBuffers(iter(buffers)))
        return gate


@dataclass(frozen=True)
class Figures:
    """The figures of one width: microseconds per record, milliseconds per subtask and epoch."""

    subtasks: int
    max_parallelism: int
    apart: bool
    send_us: float
    receive_us: float
    gate_us: float
    header_and_valve_ms: float
    addresses_ms: float
    buffers_per_sender: float
    header_bytes: int
    buffers_sent_on: float

    @property
    def cost_us(self) -> float:
        """The cost of a record, sender and receiver together."""
        return self.send_us + self.receive_us


def measure(subtasks: int, max_parallelism: int, apart: bool) -> Figures:
    """The medians over the epochs."""
    with tempfile.TemporaryDirectory(prefix="flinkish-wide-") as directory:
        simulation = Simulation(subtasks, max_parallelism, directory, apart=apart)
        epochs = [simulation.run_epoch() for _ in range(EPOCHS)][1:]
        receivers = len(simulation.receivers)
        simulation.close()
    sent, received = subtasks * RECORDS, receivers * RECORDS
    return Figures(
        subtasks,
        max_parallelism,
        apart,
        statistics.median(epoch.send_s for epoch in epochs) / sent * 1e6,
        statistics.median(epoch.receive_s for epoch in epochs) / received * 1e6,
        statistics.median(epoch.gate_s for epoch in epochs) / received * 1e6,
        statistics.median(epoch.header_and_valve_s for epoch in epochs) / receivers * 1e3,
        addresses_ms(simulation.job),
        epochs[-1].buffers_per_sender,
        epochs[-1].header_bytes,
        epochs[-1].buffers_sent_on,
    )


def addresses_ms(job: JobDescriptor) -> float:
    """The time to compute the grouping values of all subtasks, which every process needs once. The best of three."""
    times = []
    for _ in range(3):
        begin_s = time.process_time()
        AddressBook(job, partitions_of(job))
        times.append(time.process_time() - begin_s)
    return min(times) * 1e3


def table(measured: list[Figures]) -> list[str]:
    """A line per width, and the bounds for each rule of the max parallelism."""
    lines = [
        f"{'':>10} | {'us a record':^30} | {'ms a subtask and epoch':^31} | {'':>9} | {'buffers':>15} |",
        f"{'W':>4}{'max':>6} | {'send':>6}{'receive':>9}{'(gate)':>8}{'both':>7} | {'send':>7}{'receive':>9}"
        f"{'header+valve':>15} | {'addresses':>9} | {'sent':>6}{'sent on':>9} | {'header':>8}",
    ]
    for one in measured:
        send_ms, receive_ms = (us * RECORDS / 1e3 for us in (one.send_us, one.receive_us))
        lines.append(
            f"{one.subtasks:>4}{one.max_parallelism:>6} | {one.send_us:>6.2f}{one.receive_us:>9.2f}{one.gate_us:>8.2f}"
            f"{one.cost_us:>7.2f} | {send_ms:>7.1f}{receive_ms:>9.1f}{one.header_and_valve_ms:>15.2f} | "
            f"{one.addresses_ms:>6.1f} ms | {one.buffers_per_sender:>6.0f}{one.buffers_sent_on:>9.0f} | "
            f"{one.header_bytes:>6,} B{'  apart' if one.apart else ''}"
        )
    bounded = [one for one in measured if not one.apart]
    narrow, wide = bounded[0], bounded[-1]
    found = {
        "cost per record": wide.cost_us / narrow.cost_us,
        "header and valve, ms": wide.header_and_valve_ms,
        "addresses, ms": wide.addresses_ms,
    }
    lines += ["", f"{wide.subtasks} subtasks (cost per record: over that of {narrow.subtasks})"]
    for name, value in found.items():
        lines.append(
            f"  {name:<22}{value:>8.2f}, must be < {BOUNDS[name]:g}{'' if value < BOUNDS[name] else '  MISSED'}"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Cost per record and per subtask of wide jobs, without a cluster.")
    parser.add_argument("--subtasks", type=int, nargs="+", default=[4, 40, 400], metavar="W")
    parser.add_argument("--max-parallelism", type=int, nargs="+", default=[128, 0], metavar="N", help="0: 4 W")
    options = parser.parse_args()
    # the same threshold as in a worker
    gc.set_threshold(THRESHOLD, 20, 20)
    measured = []
    for subtasks in sorted(options.subtasks):
        for max_parallelism in options.max_parallelism:
            if 0 < max_parallelism < subtasks:
                print(f"{subtasks} subtasks cannot share {max_parallelism} key groups: left out", flush=True)
                continue
            for apart in (False, True):
                measured.append(measure(subtasks, max_parallelism or 4 * subtasks, apart))
                gc.freeze()
    print("\n".join(table(measured)))


if __name__ == "__main__":
    main()
