"""The committing half of sinks: makes one commit of the committables of a (sink, subtask, epoch), in a fixed order.

Rule: nothing is committed before its epoch is prepared (``runtime/epoch/files.py``). A commit that has failed, or
whose outcome is unknown, is repeated with the same content.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flinkish.common.arguments import abbreviated, check_made
from flinkish.core.sink import (
    NO_FENCE,
    CommitContext,
    Committer,
    DataFrameSink,
    Fence,
    FenceOfEpochs,
    WriterSink,
    ahead_of,
)
from flinkish.errors import TypeMismatchError, failures_of_user_code
from flinkish.runtime.epoch.files import EpochFiles, PreparedEpoch
from flinkish.runtime.exchange.buffer import Buffer, BufferKind, decode, encode
from flinkish.runtime.job.deployment import JobDescriptor, SinkDescriptor
from flinkish.runtime.job.failure import describe_failure
from flinkish.runtime.operators.source_and_sink import decode_committables
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses

_log = logging.getLogger("flinkish.Committer")

_fence_of_commits = FenceOfEpochs()


@dataclass(frozen=True)
class CommitReport:
    """The result of one commit. ``records`` is 0 if the epoch had been committed before."""

    sink: int
    subtask: int
    records: int
    #: how long the sink has taken, in ms
    ms: float = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """What is stored, without a time that was not there at first: the default says it."""
        return {name: value for name, value in self.__dict__.items() if value or name != "ms"}


@dataclass(frozen=True)
class EpochCommit:
    """Makes the commits of an epoch, and holds what they have in common."""

    job: JobDescriptor
    epoch: int
    time_ms: int
    end_of_input: bool
    fence: Fence = NO_FENCE
    #: where committables lie that are not in the buffers themselves; None if all of them are
    files: EpochFiles | None = None
    #: number of a sink -> the uid that it had when the epoch was prepared, if that was another one
    uids: Mapping[int, str] = field(default_factory=dict)

    def commit(self, sink_id: int, subtask: int, buffers: Iterable[bytes]) -> CommitReport:
        """Commit the committables of one subtask of a writer sink.

        Raises:
            FencedError: this driver does not own the job any more.
            FlinkishError: the sink has raised an error (`commit_failure`).
        """
        sink = self.job.sink(sink_id)
        assert isinstance(sink.sink, WriterSink)
        context = self.context(sink, subtask)
        passed(Phase.COMMIT_BEGUN, sink=sink.uid, subtask=subtask, epoch=self.epoch)
        begun_s = time.monotonic()
        _fence_of_commits.check(self.fence, self.job.job_id, self.job.attempt, self.epoch)
        try:
            records = _committed(
                committer_of(sink.sink), batches_in_order(buffers, self.files, self.job.classes), context
            )
        except failures_of_user_code() as error:
            raise commit_failure(error, f"sink '{sink.name}' ({subtask + 1}/{sink.parallelism})", self.epoch) from error
        passed(Phase.SINK_COMMITTED, sink=sink.uid, subtask=subtask, epoch=self.epoch)
        return CommitReport(sink.id, subtask, records, round((time.monotonic() - begun_s) * 1000, 3))

    def with_payload(self, data: bytes) -> bytes:
        """The same buffer with its committables as payload, read from their file if they lie in one."""
        buffer = decode(data)
        if self.files is None or buffer.header.kind is not BufferKind.COMMITTABLES_IN_FILE:
            return data
        return encode(buffer.header._replace(kind=BufferKind.COMMITTABLES), self.files.payload(buffer))

    def context(self, sink: SinkDescriptor, subtask: int) -> CommitContext:
        """The context that the committer of a sink's subtask is given."""
        return CommitContext(
            job_id=self.job.job_id,
            job_name=self.job.name,
            sink_uid=self.uids.get(sink.id, sink.uid),
            sink_name=sink.name,
            epoch=self.epoch,
            epoch_time_ms=self.time_ms,
            subtask=subtask,
            parallelism=sink.parallelism,
            end_of_input=self.end_of_input,
            fence=self.fence,
        )


def committer_of(sink: WriterSink) -> Committer:
    """A new committer of a sink.

    Raises:
        TypeMismatchError: the sink has made something else.
    """
    committer = sink.create_committer()
    check_made(committer, Committer, sink, "create_committer")
    return committer


def _committed(committer: Committer, batches: Iterator[list[Any]], context: CommitContext) -> int:
    """The number of records that a committer has made visible. When it has returned, they are: so whatever it returns
    is no failure of the epoch, and without a number all that it has taken counts."""
    taken = 0

    def taking() -> Iterator[list[Any]]:
        nonlocal taken
        for batch in batches:
            taken += len(batch)
            yield batch

    # __index__: whole numbers, numpy's included
    returned: Any = committer.commit(taking(), context)
    if hasattr(returned, "__index__"):
        return int(returned)
    if returned is not None:
        _log.warning(
            "commit() of %s returned %s [sink '%s']; expected the number of records; the %d committables that it has "
            "taken count instead",
            type(committer).__name__,
            abbreviated(returned),
            context.sink_name,
            taken,
        )
    return taken


def commit_of(
    job: JobDescriptor, prepared: PreparedEpoch, fence: Fence = NO_FENCE, files: EpochFiles | None = None
) -> EpochCommit:
    """The commit of a prepared epoch."""
    return EpochCommit(job, prepared.epoch, prepared.time_ms, prepared.end_of_input, fence, files, prepared.uids(job))


def check_sinks(job: JobDescriptor, last_epoch: int, session: Any = None) -> None:
    """Check that no sink knows an epoch behind the last one that was prepared (-1: none was). A sink that does would
    take the records of the epochs to come for records that it has.

    Raises:
        FinalOperationError: a sink does: the state that the job goes on from is older than its output.
        ConnectionFailedError: a sink's destination cannot be reached.
    """
    for sink in job.sinks:
        context = EpochCommit(job, last_epoch + 1, 0, False).context(sink, 0)
        found = None
        if isinstance(sink.sink, WriterSink):
            found = _asked(sink, context, partial(_last_of_committer, sink.sink))
        elif isinstance(sink.sink, DataFrameSink):
            found = _asked(sink, context, partial(sink.sink.last_committed_epoch, session))
        if found is not None and found > last_epoch:
            raise ahead_of(context, found)


#: What to do about a sink that fails in its commit.
COMMIT_HINT = (
    "the epoch is prepared: the job, started again, commits what is left of it without running it again; what the "
    "sink refuses for good can be skipped (flinkish prepared JOB_DIR)"
)


def _last_of_committer(sink: WriterSink, context: CommitContext) -> int | None:
    return committer_of(sink).last_committed_epoch(context)


def _asked(sink: SinkDescriptor, context: CommitContext, last_committed: Callable[[CommitContext], Any]) -> int | None:
    """What a sink says of its last committed epoch.

    Raises:
        UserCodeError: it has raised an error.
        TypeMismatchError: it is no number.
    """
    try:
        found = last_committed(context)
    except failures_of_user_code() as error:
        raise describe_failure(error, f"sink '{sink.name}'", context.epoch) from error
    if found is not None and not hasattr(found, "__index__"):
        raise TypeMismatchError(
            f"last_committed_epoch() returned {abbreviated(found)}",
            where=f"sink '{sink.name}' (uid {sink.uid})",
            expected="the number of an epoch, or None",
        )
    return found  # type: ignore[no-any-return]


def commit_failure(error: BaseException, where: str, epoch: int) -> Exception:
    """The typed error for an error that a sink has raised in its commit."""
    return describe_failure(error, where, epoch, COMMIT_HINT)


def commits_on_driver(sink: SinkDescriptor) -> bool:
    """Whether the committer of a sink runs in the driver, so that its committables must be brought there."""
    return isinstance(sink.sink, WriterSink) and committer_of(sink.sink).on_driver


def batches_in_order(
    data: Iterable[bytes], files: EpochFiles | None = None, classes: ProgramClasses = NO_CLASSES
) -> Iterator[list[Any]]:
    """The committables of one (sink, subtask), ordered by origin, part and sequence, which is the same order at each
    delivery."""
    buffers: list[Buffer] = [decode(buffer) for buffer in data]
    for buffer in sorted(buffers, key=lambda b: (b.header.origin, b.header.part, b.header.sequence)):
        yield decode_committables(buffer.payload if files is None else files.payload(buffer), classes)[1]
