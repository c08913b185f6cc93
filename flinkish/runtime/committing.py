"""The committing half of sinks: committables of one (sink, subtask, epoch), in a fixed order, into one commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from flinkish.core.fence import NO_FENCE, Fence
from flinkish.core.sink import CommitContext, WriterSink
from flinkish.runtime.buffer import Buffer
from flinkish.runtime.deployment import CHANGELOG_VERTEX, JobDescriptor, SinkDescriptor
from flinkish.runtime.failure import describe_failure
from flinkish.runtime.operators.sink_writer import decode_committables
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored_pickle import dumps, loads
from flinkish.runtime.task import EpochStamp, sink_vertex

#: Version of the form in which reports travel.
FORMAT_VERSION = 2


@dataclass(frozen=True)
class CommitReport:
    """One commit. ``records`` is 0 when the epoch had been committed before."""

    sink: int
    subtask: int
    records: int

    def encode(self) -> bytes:
        """The form in which it travels."""
        return dumps((self.sink, self.subtask, self.records), FORMAT_VERSION)

    @staticmethod
    def decode(data: bytes) -> CommitReport:
        """The inverse of `encode`."""
        return CommitReport(*loads(data, FORMAT_VERSION, "the report of a commit"))


def sink_of(vertex: int) -> int:
    """The sink that rows with this vertex number belong to."""
    return -2 - vertex


def is_sink_vertex(vertex: int) -> bool:
    """Whether rows with this vertex number belong to a sink."""
    return CHANGELOG_VERTEX < vertex <= sink_vertex(0)


def commits_on_driver(sink: SinkDescriptor) -> bool:
    """Whether the committables of a sink are brought to the driver."""
    return isinstance(sink.sink, WriterSink) and sink.sink.create_committer().on_driver


def batches_in_order(buffers: Iterable[Buffer], classes: ProgramClasses = NO_CLASSES) -> Iterator[list[Any]]:
    """The committables of one (sink, subtask), by origin, part and sequence: the same order at each delivery."""
    for buffer in sorted(buffers, key=lambda b: (b.header.origin, b.header.part, b.header.sequence)):
        yield decode_committables(buffer.payload, classes)[1]


def commit_buffers(
    job: JobDescriptor, buffers: Iterable[Buffer], epoch: int, end_of_input: bool = False, fence: Fence = NO_FENCE
) -> list[CommitReport]:
    """Commit what belongs to writer sinks, one commit per (sink, subtask), each while the fence lets it."""
    by_target: dict[tuple[int, int], list[Buffer]] = defaultdict(list)
    for buffer in buffers:
        by_target[sink_of(buffer.header.vertex), buffer.header.channel].append(buffer)
    return [
        _commit(job, job.sink(sink), subtask, by_target[sink, subtask], epoch, end_of_input, fence)
        for sink, subtask in sorted(by_target)
    ]


def _commit(
    job: JobDescriptor,
    sink: SinkDescriptor,
    subtask: int,
    buffers: list[Buffer],
    epoch: int,
    end: bool,
    fence: Fence,
) -> CommitReport:
    assert isinstance(sink.sink, WriterSink)
    stamp = EpochStamp(epoch, decode_committables(buffers[0].payload, job.classes)[0])
    context = commit_context(job, sink, subtask, stamp, end, fence)
    passed(Phase.SINK_PREPARED, sink=sink.uid, subtask=subtask, epoch=stamp.epoch)
    fence.check()
    try:
        records = sink.sink.create_committer().commit(batches_in_order(buffers, job.classes), context)
    except Exception as error:
        raise describe_failure(error, f"sink '{sink.name}' ({subtask + 1}/{sink.parallelism})", stamp.epoch) from error
    passed(Phase.SINK_COMMITTED, sink=sink.uid, subtask=subtask, epoch=stamp.epoch)
    return CommitReport(sink.id, subtask, records)


def commit_context(
    job: JobDescriptor,
    sink: SinkDescriptor,
    subtask: int,
    stamp: EpochStamp,
    end: bool = False,
    fence: Fence = NO_FENCE,
) -> CommitContext:
    """What a sink is told about one share of the output."""
    return CommitContext(
        job_id=job.job_id,
        job_name=job.name,
        sink_uid=sink.uid,
        sink_name=sink.name,
        epoch=stamp.epoch,
        epoch_time_ms=stamp.time_ms,
        subtask=subtask,
        parallelism=sink.parallelism,
        end_of_input=end,
        fence=fence,
    )
