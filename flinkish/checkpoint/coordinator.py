"""Decides which epoch's end becomes a checkpoint, and what follows from failed ones (Flink's CheckpointCoordinator).

Rule: every epoch's end is an aligned barrier; whether it becomes a checkpoint is decided here, by the clock and by the
outcome of the checkpoints before it. There is no Spark here and no thread of its own; any thread may call it.

Beside it stand what is remembered of the last barriers and savepoints, and the interface of a run's checkpoints.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import CheckpointError, message_of
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job.lifecycle import CHECKPOINT_TRANSITIONS, CheckpointState, StateMachine
from flinkish.jobmanager.job.settings import CheckpointSettings
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Clock, SystemClock

#: Number of epochs that are remembered: Spark commits an epoch soon after its sinks have.
_EPOCHS = 32


@dataclass(frozen=True)
class Barrier:
    """What is known of the job at the end of an epoch; nothing of tasks that have not reported since the driver
    started."""

    epoch: int
    #: uid of a vertex' head operator -> lowest watermark of its subtasks
    watermarks: dict[str, int] = field(default_factory=dict)
    #: uid of a vertex' head operator -> bytes of its state, as its tasks hold it; the same for each of them
    state_bytes: dict[str, int] = field(default_factory=dict)
    subtask_state_bytes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: totals of the job's accumulators, encoded
    accumulators: bytes = b""

    def figures(self) -> dict[str, Any]:
        """What the description of a checkpoint says of it, as fields of that."""
        names = ("watermarks", "state_bytes", "subtask_state_bytes")
        return {name: getattr(self, name) for name in names}


class Barriers:
    """Remembers the barriers of the last epochs: watermarks, sizes of state and accumulators, as the tasks have
    reported them. Any thread may call it.
    """

    def __init__(self) -> None:
        self._watermarks: dict[tuple[int, int], int] = {}
        self._bytes: dict[tuple[int, int], int] = {}
        self._ends: OrderedDict[int, Barrier] = OrderedDict()
        self._lock = threading.Lock()
        self._accumulators = b""

    def begin(self, accumulators: bytes) -> None:
        """Set the totals of the accumulators as of the end of the last epoch before those that will be added."""
        with self._lock:
            self._accumulators = accumulators

    def add(self, job: JobDescriptor, report: EpochReport) -> None:
        """Remember the barrier of an epoch that the sinks have committed."""
        with self._lock:
            self._accumulators = report.accumulators or self._accumulators
            for task in report.tasks:
                if task.watermark_ms is not None:
                    self._watermarks[task.vertex, task.subtask] = task.watermark_ms
                if task.state_bytes:
                    self._bytes[task.vertex, task.subtask] = task.state_bytes
            sizes = self._sizes(job)
            total = {uid: sum(of_tasks) for uid, of_tasks in sizes.items()}
            self._ends[report.epoch] = Barrier(report.epoch, self._lowest(job), total, sizes, self._accumulators)
            while len(self._ends) > _EPOCHS:
                self._ends.popitem(last=False)

    def of(self, epoch: int) -> Barrier:
        """The barrier of an epoch; if it is not remembered, one with the latest totals of the accumulators alone."""
        with self._lock:
            return self._ends.get(epoch, Barrier(epoch, accumulators=self._accumulators))

    def _lowest(self, job: JobDescriptor) -> dict[str, int]:
        lowest: dict[str, int] = {}
        for (vertex, _), watermark_ms in self._watermarks.items():
            if MIN_TIMESTAMP_MS < watermark_ms < MAX_WATERMARK_MS:
                uid = job.vertex(vertex).head.uid
                lowest[uid] = min(watermark_ms, lowest.get(uid, watermark_ms))
        return lowest

    def _sizes(self, job: JobDescriptor) -> dict[str, tuple[int, ...]]:
        return {
            vertex.head.uid: tuple(self._bytes.get((vertex.id, subtask), 0) for subtask in range(vertex.parallelism))
            for vertex in map(job.vertex, dict.fromkeys(vertex for vertex, _ in self._bytes))
        }


#: Number of checkpoints whose descriptions are kept.
MAX_DESCRIPTIONS = 100
#: Number of those whose descriptions say how large the state of each subtask is: there may be thousands.
MAX_DETAILED = 10


@dataclass
class _Pending:
    """A checkpoint that has been triggered and has neither completed nor failed."""

    machine: StateMachine[CheckpointState]
    description: CheckpointDescription


class CheckpointCoordinator:
    """Decides when a checkpoint of one job is due, and follows the pending one to its end; at most one is pending.

    Args:
        settings: intervals, tolerable failures.
        where: names the job in errors.
        clock: the clock that decides when a checkpoint is due; by default the machine's.
        next_id: gives the number of a new checkpoint; numbers go on over restarts.
        ended: called with the description of each checkpoint that has completed or failed.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        where: str,
        next_id: Callable[[], int],
        clock: Clock | None = None,
        ended: Callable[[CheckpointDescription], None] = lambda description: None,
    ) -> None:
        self._settings = settings
        self._where = where
        self._clock = clock or SystemClock()
        self._next_id = next_id
        self._ended = ended
        self._lock = threading.RLock()
        self._past: deque[CheckpointDescription] = deque(maxlen=MAX_DESCRIPTIONS)
        self._pending: _Pending | None = None
        self._triggered_ms = self._clock.now_ms()
        self._ended_ms: int | None = None
        self._failures_in_a_row = 0

    # ------------------------------------------------------------------ when a checkpoint is due

    def due_in_ms(self) -> int | None:
        """Milliseconds until the end of an epoch should become a checkpoint, 0 for now; None while a checkpoint is
        pending, and if there is no checkpoint interval."""
        settings = self._settings
        with self._lock:
            if settings.interval_ms is None or self._pending is not None:
                return None
            now_ms = self._clock.now_ms()
            # a clock that was set back must not delay checkpoints
            if now_ms < self._triggered_ms:
                return 0
            paused_ms = 0 if self._ended_ms is None else self._ended_ms + settings.min_pause_ms - now_ms
            return max(0, paused_ms, self._triggered_ms + settings.interval_ms - now_ms)

    def trigger(self, epoch: int, path_of: Callable[[int], str] = str) -> CheckpointDescription:
        """Begin a checkpoint of a committed epoch. Call it only while none is pending. ``path_of``: number -> path of
        the checkpoint."""
        with self._lock:
            assert self._pending is None, "one checkpoint at a time"
            number, now_ms = self._next_id(), self._clock.now_ms()
            machine = StateMachine(CHECKPOINT_TRANSITIONS, f"checkpoint {number}", clock=self._clock)
            description = CheckpointDescription(
                id=number, epoch=epoch, status=machine.state.name, trigger_time_ms=now_ms, path=path_of(number)
            )
            self._pending = _Pending(machine, description)
            self._triggered_ms = now_ms
            return description

    # ------------------------------------------------------------------ the pending checkpoint

    def update(self, description: CheckpointDescription) -> None:
        """Replace the description of the pending checkpoint by one that says more."""
        with self._lock:
            if self._pending is not None and self._pending.description.id == description.id:
                self._pending.description = description

    def complete(self) -> CheckpointDescription:
        """Mark the pending checkpoint as completed."""
        with self._lock:
            self._failures_in_a_row = 0
            return self._end(CheckpointState.COMPLETED, None)

    def fail(self, reason: str, counts: bool = True) -> CheckpointError | None:
        """Mark the pending checkpoint as failed, or count one that could not be triggered if none is pending: it has no
        number, and the next one is due an interval later. Returns the error that the job must fail with when too many
        have failed in a row, otherwise None.

        ``counts``: False for a checkpoint that was aborted because the job is restarted or ends, or has another owner.
        """
        with self._lock:
            if self._pending is None:
                self._triggered_ms = self._clock.now_ms()
            else:
                self._end(CheckpointState.FAILED, reason)
            self._failures_in_a_row += counts
            failures = self._failures_in_a_row
            if failures <= self._settings.tolerable_failures:
                return None
            self._failures_in_a_row = 0
        return CheckpointError(
            f"{failures} checkpoint{'s'[: failures != 1]} in a row failed, the last one with: {reason}",
            where=self._where,
            expected=f"at most {self._settings.tolerable_failures} in a row "
            "(execution.checkpointing.tolerable-failed-checkpoints)",
            hint="mend what the last one failed with, or tolerate more failures",
        )

    def _end(self, state: CheckpointState, reason: str | None) -> CheckpointDescription:
        pending = self._pending
        assert pending is not None, "no checkpoint is pending"
        pending.machine.to(state, reason or "")
        now_ms = self._clock.now_ms()
        duration_ms = max(0, now_ms - pending.description.trigger_time_ms)
        last = replace(pending.description, status=state.name, duration_ms=duration_ms, failure_reason=reason)
        if state is CheckpointState.FAILED:
            last = replace(last, path=None)
        self._pending, self._ended_ms = None, now_ms
        self._past.append(last)
        if len(self._past) > MAX_DETAILED:
            self._past[-1 - MAX_DETAILED] = replace(self._past[-1 - MAX_DETAILED], subtask_state_bytes={})
        self._ended(last)
        return last

    # ------------------------------------------------------------------ what is known

    @property
    def pending(self) -> CheckpointDescription | None:
        """The description of the pending checkpoint; None if there is none."""
        with self._lock:
            return None if self._pending is None else self._pending.description

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last checkpoints, oldest first, including the pending one."""
        with self._lock:
            pending = () if self._pending is None else (self._pending.description,)
            return (*self._past, *pending)


class Checkpoints(Protocol):
    """Takes and describes the checkpoints of a run."""

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last checkpoints, oldest first."""

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """Take a checkpoint of the last committed epoch and wait for it, for ``timeout_s`` seconds at most; returns its
        path, None when there is none."""

    def take_now(self, full: bool) -> int:
        """Take a checkpoint of the last committed epoch, whether one is due or not, and wait for it; returns its
        number. ``full``: of all state.

        Raises:
            FlinkishError: it could not be taken, which does not count as a failure of the job's checkpoints.
        """

    def barrier(self, epoch: int) -> Barrier:
        """What is known of the job at the end of an epoch."""

    def close(self, delete: bool = False) -> None:
        """Take no more checkpoints, because the job has ended. ``delete``: delete them, nobody will need them."""


class NoCheckpoints:
    """Takes no checkpoints: for jobs that never run."""

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """An empty tuple: there are no checkpoints."""
        return ()

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """None: the job directory holds the last committed epoch anyway."""
        return None

    def take_now(self, full: bool) -> int:
        """Raises CheckpointError: there is nothing to take one of."""
        raise CheckpointError("the job does not run, so there is no state to take a checkpoint of")

    def barrier(self, epoch: int) -> Barrier:
        """Nothing is known."""
        return Barrier(epoch)

    def close(self, delete: bool = False) -> None:
        """Does nothing."""


class SavepointLog:
    """The last savepoints that were taken of one job in this driver, and those that are being taken. Any thread may use
    it.

    They are shown beside the job's checkpoints, and have no part in when a checkpoint is due, in how many are retained,
    or in how many may fail.

    Rule: what is remembered is bounded.

    Args:
        ended: called with the description of each savepoint that has completed or failed.
        clock: gives the times of savepoints; by default the machine's.
        next_id: gives the number of a new savepoint, which no checkpoint of the job has either; None: from 1 on.
    """

    def __init__(
        self,
        ended: Callable[[CheckpointDescription], None],
        clock: Clock | None = None,
        next_id: Callable[[], int] | None = None,
    ) -> None:
        self._ended = ended
        self._next_id = next_id or count(1).__next__
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: number -> description, oldest first
        self._known: dict[int, CheckpointDescription] = {}
        #: the number of the one that is written now; None: one that nobody has waited for
        self._turn: int | None = None

    @contextmanager
    def waiting(self, epoch: int) -> Iterator[int]:
        """A savepoint is asked for, and waits within the block until it is written in a block of `turn_of`; gives its
        number. It has failed if the block raises. ``epoch``: the last committed one, which may not be its own."""
        number = self._add(epoch, None).id
        try:
            yield number
        except BaseException as error:
            self._fail(number, error)
            raise
        self._end(number, CheckpointState.COMPLETED)

    @contextmanager
    def turn_of(self, number: int) -> Iterator[None]:
        """What is taken within the block is the savepoint of this number. There is one such block at a time."""
        self._turn = number
        try:
            yield
        finally:
            self._turn = None

    @contextmanager
    def taking(self, epoch: int, path: str) -> Iterator[Callable[..., None]]:
        """A savepoint of an epoch is taken within the block: it has failed if the block raises, otherwise completed.

        The block is given a function for what it learns of the savepoint, as fields of its description.
        """
        learned: dict[str, Any] = {}
        number = self._add(epoch, path).id if self._turn is None else self._turn
        self._change(number, epoch=epoch, path=path)
        try:
            yield learned.update
        except BaseException as error:
            self._fail(number, error)
            raise
        self._end(number, CheckpointState.COMPLETED, **learned)

    def _add(self, epoch: int, path: str | None) -> CheckpointDescription:
        number, state, now_ms = self._next_id(), CheckpointState.PENDING.name, self._clock.now_ms()
        added = CheckpointDescription(number, epoch, state, now_ms, is_savepoint=True, path=path)
        with self._lock:
            self._known[number] = added
            if len(self._known) > MAX_DESCRIPTIONS:
                del self._known[next(iter(self._known))]
        return added

    def _change(self, number: int, **changes: Any) -> None:
        with self._lock:
            if number in self._known:
                self._known[number] = replace(self._known[number], **changes)

    def _fail(self, number: int, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {message_of(error)}"
        self._end(number, CheckpointState.FAILED, path=None, failure_reason=reason)

    def _end(self, number: int, state: CheckpointState, **learned: Any) -> None:
        with self._lock:
            pending = self._known.get(number)
            if pending is None or pending.status != CheckpointState.PENDING.name:
                return
            duration_ms = max(0, self._clock.now_ms() - pending.trigger_time_ms)
            ended = replace(pending, status=state.name, duration_ms=duration_ms, **learned)
            self._known[number] = ended
            for old, one in list(self._known.items())[:-MAX_DETAILED]:
                self._known[old] = replace(one, subtask_state_bytes={})
        self._ended(ended)

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last savepoints in the order in which they were triggered."""
        with self._lock:
            return tuple(self._known.values())
