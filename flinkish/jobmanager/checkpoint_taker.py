"""Takes the checkpoints of a run in a thread of its own, so that no epoch waits for them.

Rule: a checkpoint is of a committed epoch, and reads only what that epoch has left; so it neither sees nor disturbs the
epochs that run meanwhile, and one that fails changes nothing. Too many failures in a row fail the attempt, as in Flink.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flinkish.checkpoint.claim import delete_checkpoints, subsume_claimed
from flinkish.checkpoint.coordinator import Barrier, Barriers, CheckpointCoordinator
from flinkish.checkpoint.maintenance import gentle_jobs, own_session
from flinkish.checkpoint.manifest import CheckpointDirectory
from flinkish.checkpoint.writer import ChangelogLedger, CheckpointWriter
from flinkish.errors import CheckpointError, FencedError, FlinkishError
from flinkish.jobmanager.job.description import CheckpointDescription, JobObserver
from flinkish.jobmanager.job.settings import CheckpointSettings
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.phases import Clock
from flinkish.runtime.task.task import RETAINED_EPOCHS
from flinkish.spark.executors import running_tasks
from flinkish.spark.failures import raised_by_spark, translate
from flinkish.spark.settings import SparkWork
from flinkish.spark.worker import secret_of

if TYPE_CHECKING:
    from flinkish.jobmanager.attempt import QueryAttempt
    from flinkish.jobmanager.spark_run import SparkRun

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

#: Longest time in milliseconds that the thread sleeps before it checks again whether a checkpoint is due.
_LOOK_MS = 1_000
#: After so many looks at which none of its tasks runs a checkpoint is one that waits for a slot.
_LOOKS = 4
_SLOT = "checkpoint waits"
_WAITS = "waits for a task slot, since epochs take all of them: give Spark more slots than the job's parallelism"
#: Seconds that the thread gets to end when it is closed.
_CLOSE_S = 30.0


def was_outrun(epoch: int, committed: int | None, error: Exception) -> bool:
    """Whether a failure may come from reading the state of an epoch that was deleted meanwhile. ``committed``: the last
    committed epoch; None: there is none."""
    return committed is not None and committed >= epoch + RETAINED_EPOCHS - 1 and raised_by_spark(error)


#: Why the last checkpoint is aborted.
_JOB_HAS_ENDED = "the job has ended"


def attach_checkpoints(run: SparkRun) -> None:
    """Let a run take the checkpoints that its settings ask for, and those that somebody asks for; delete the changelog
    if they need none."""
    settings = run.settings.checkpoints
    if not settings.changelog:
        ChangelogLedger(run.directory).drop()
    taker = CheckpointTaker(run, settings, run.checkpoint_directory)
    run.checkpoints = taker
    run.observers.append(taker)


@dataclass(eq=False)
class _ByHand:
    """A checkpoint that somebody has asked for, and its number."""

    full: bool
    #: whether it is held from its end on
    holds: bool = False
    #: whether nobody waits for it any more
    left: bool = False
    outcome: Future[int] = field(default_factory=Future)


class CheckpointTaker(JobObserver):
    """Takes the checkpoints of one run: asks the coordinator when one is due, and writes it in a thread of its own."""

    def __init__(
        self, run: SparkRun, settings: CheckpointSettings, directory: CheckpointDirectory, clock: Clock | None = None
    ) -> None:
        self._run = run
        self._settings = settings
        self.directory = directory
        self.coordinator = CheckpointCoordinator(
            settings, f"job '{run.name}'", directory.next_id, clock, run.checkpoint_ended
        )
        self._barriers = Barriers()
        self._ledger = ChangelogLedger(run.directory) if settings.changelog else None
        self._wake = threading.Condition()
        #: (attempt, its last committed epoch)
        self._committed: tuple[QueryAttempt, int] | None = None
        self._taken: int | None = None
        self._asked = self._answered = 0
        #: the checkpoints by hand that nobody has begun
        self._by_hand: deque[_ByHand] = deque()
        self._closed = self._has_begun = False
        self._give_up: str | None = None
        self._session: Any = None
        #: what Spark does for the checkpoint, or did for the last one
        self._on_spark: SparkWork | None = None
        self._writer: CheckpointWriter | None = None
        self._thread = threading.Thread(target=self._work, name=f"flinkish-checkpoints-{run.name}", daemon=True)

    # ------------------------------------------------------------------ what the run reports

    def attempt_started(self, attempt: int) -> None:
        if self._run.record is not None:
            self._barriers.begin(self._run.record.accumulators)
        if self._settings.enabled:
            self._begin()

    def _begin(self) -> None:
        """Start the thread, unless that was done."""
        with self._wake:
            if not self._has_begun and not self._closed:
                self._has_begun = True
                self._thread.start()

    def epoch_done(self, report: EpochReport) -> None:
        attempt = self._run.attempt
        self._barriers.add(attempt.job, report)
        if self._ledger is not None:
            self._ledger.epoch_written(report.epoch, attempt.location.path)

    def epoch_committed(self, epoch: int) -> None:
        with self._wake:
            self._committed = (self._run.attempt, epoch)
            self._wake.notify_all()

    # ------------------------------------------------------------------ what the run asks

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last checkpoints, oldest first, including the pending one."""
        return self.coordinator.describe()

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """Take a checkpoint of the last committed epoch and wait for it, for ``timeout_s`` seconds at most (None: for
        as long as it takes); returns its path, None when there is none (`describe` says why)."""
        epoch = self._run.attempt.committed_epoch()
        if epoch is None or not self._thread.is_alive():
            return self._path_of(epoch)
        with self._wake:
            self._committed = (self._run.attempt, epoch)
            self._asked += 1
            number = self._asked
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._answered >= number or self._closed, timeout_s)
        return self._path_of(epoch)

    def barrier(self, epoch: int) -> Barrier:
        """What is known of the job at the end of an epoch."""
        return self._barriers.of(epoch)

    def _path_of(self, epoch: int | None) -> str | None:
        for description in reversed(self.describe()):
            if description.epoch == epoch and description.status == "COMPLETED":
                return description.path
        return None

    def take_now(self, full: bool) -> int:
        """Take a checkpoint by hand and wait for it; see `Checkpoints.take_now`. Without an interval it is a full
        one."""
        return self._asked_for(_ByHand(full)).outcome.result()

    @contextmanager
    def held(self, check: Callable[[], None]) -> Iterator[str]:
        """Take a checkpoint now; within the block, whose variable is its path, it and the versions that it names stay
        as they are, however many follow. ``check`` is called while the checkpoint is waited for; what it raises ends
        the wait.

        Raises:
            FlinkishError: the checkpoint could not be taken.
        """
        asked = self._asked_for(_ByHand(full=False, holds=True))
        try:
            while not asked.outcome.done():
                check()
                wait([asked.outcome], _LOOK_MS / 10_000)
            yield self.directory.checkpoint(asked.outcome.result())
        finally:
            with self._wake:
                asked.left = True
                if asked.outcome.done() and asked.outcome.exception() is None:
                    self.directory.let_go(asked.outcome.result())

    def _asked_for(self, asked: _ByHand) -> _ByHand:
        self._begin()
        epoch = self._run.attempt.committed_epoch()
        with self._wake:
            if self._closed:
                raise CheckpointError(_JOB_HAS_ENDED, where=f"job '{self._run.name}'")
            if self._committed is None and epoch is not None:
                self._committed = (self._run.attempt, epoch)
            self._by_hand.append(asked)
            self._wake.notify_all()
        return asked

    def close(self, delete: bool = False) -> None:
        """End the thread, because the job has ended. A pending checkpoint is aborted; ``delete``: all are deleted."""
        with self._wake:
            self._closed = True
            left = list(self._by_hand)
            self._by_hand.clear()
            self._wake.notify_all()
        for asked in left:
            asked.outcome.set_exception(CheckpointError(_JOB_HAS_ENDED, where=f"job '{self._run.name}'"))
        self._abort(_JOB_HAS_ENDED)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        if delete:
            # also those that earlier drivers have taken
            delete_checkpoints(self.directory, self._run.directory, self._run.name)

    # ------------------------------------------------------------------ the thread

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._closed and self._next() is None:
                    self._wake.wait(self._wait_ms() / 1000)
                if self._closed:
                    return
                target, asked = self._next(), self._asked
                by_hand = self._by_hand.popleft() if self._by_hand else None
            if target is not None:
                self.take(*target, by_hand)
            with self._wake:
                self._answered = asked
                self._wake.notify_all()

    def _next(self) -> tuple[QueryAttempt, int] | None:
        """The attempt and the epoch of which a checkpoint is due now; None: none is due."""
        if self._committed is None:
            return None
        if self._by_hand:
            return self._committed
        if self._committed[1] == self._taken:
            # no epoch has been committed since
            self._answered = self._asked
            self._wake.notify_all()
            return None
        due = self._asked > self._answered or self.coordinator.due_in_ms() == 0
        return self._committed if due else None

    def _wait_ms(self) -> int:
        due_ms = self.coordinator.due_in_ms()
        return _LOOK_MS if due_ms is None else max(1, min(due_ms, _LOOK_MS))

    def take(self, attempt: QueryAttempt, epoch: int, by_hand: _ByHand | None = None) -> None:
        """Take one checkpoint, from its trigger to its completion or failure. ``by_hand``: who has asked for it."""
        # before the trigger: from then on this checkpoint can be aborted
        self._give_up = None
        try:
            # checked first: the number is written to a file of the job, which another driver may have taken over
            self._run.directory.check_owner(self._run.name)
            pending = self.coordinator.trigger(epoch, self.directory.checkpoint)
        except Exception as error:
            self._fail(error, by_hand)
            return
        if self._closed:
            # the end of the job may have come before there was a checkpoint to abort
            self._give_up = _JOB_HAS_ENDED
        done = threading.Event()
        threading.Thread(
            target=self._watch, args=(pending, done), name="flinkish-checkpoint-watch", daemon=True
        ).start()
        try:
            description = self._write(attempt, pending, by_hand is not None and by_hand.full)
        except Exception as error:
            self._fail(error, by_hand)
        else:
            self._taken = description.epoch
            self.coordinator.update(description)
            self.coordinator.complete()
            if by_hand is not None:
                with self._wake:
                    if by_hand.holds and not by_hand.left:
                        self.directory.hold(description.id)
                    by_hand.outcome.set_result(description.id)
            self._clean(description.epoch)
        finally:
            done.set()

    def _watch(self, pending: CheckpointDescription, done: threading.Event) -> None:
        """Abort a checkpoint whose time is over; and say so for as long as it waits for a task slot."""
        ends_s, looks, warnings = time.monotonic() + self._settings.timeout_ms / 1000, 0, self._run.warnings
        while not done.wait(min(_LOOK_MS / 1000, max(ends_s - time.monotonic(), 0))):
            if time.monotonic() >= ends_s:
                self._abort(f"it took longer than {self._settings.timeout_ms} ms")
                break
            with suppress(Exception):
                # it has tasks, and none of them runs
                work = self._on_spark
                waits = work is not None and work.tasks() and not running_tasks(self._session, work.group)
                looks = looks + 1 if waits else 0
            if looks == _LOOKS:
                text = f"checkpoint {pending.id} of epoch {pending.epoch} {_WAITS}"
                _LOG.warning("job '%s': %s", self._run.name, text)
                warnings[_SLOT] = text
            elif not looks:
                warnings.pop(_SLOT, None)
        warnings.pop(_SLOT, None)

    def _clean(self, epoch: int) -> None:
        """Delete what is left of earlier checkpoints, and merge changes. A failure to do so fails nothing: the next
        checkpoint tries again."""
        assert self._writer is not None
        try:
            description = f"{self._run.name}: clean-up after the checkpoint of epoch {epoch}"
            with gentle_jobs(self._session, description) as self._on_spark:
                self._writer.clean(self._settings.num_retained, epoch)
            subsume_claimed(self._run.directory, len(self.directory.completed()), self._settings.num_retained)
        except Exception as error:
            _LOG.warning("job '%s': old checkpoints could not be deleted: %s", self._run.name, error)
        try:
            description = f"{self._run.name}: merge of checkpointed changes"
            with gentle_jobs(self._session, description) as self._on_spark:
                self._writer.merge()
        except Exception as error:
            level = logging.DEBUG if self._closed else logging.WARNING
            _LOG.log(level, "job '%s': changes of checkpoints could not be merged: %s", self._run.name, error)

    def _write(self, attempt: QueryAttempt, pending: CheckpointDescription, full: bool) -> CheckpointDescription:
        self._session = self._session or own_session(self._run.spark)
        writer = self._writer = self._writer or CheckpointWriter(
            self._session, self.directory, self._check, self._ledger
        )
        description = f"{self._run.name}: checkpoint {pending.id} of epoch {pending.epoch}"
        with gentle_jobs(self._session, description) as self._on_spark:
            try:
                return writer.write(attempt, pending, self._barriers.of(pending.epoch), full)
            except Exception as error:
                newer = self._committed
                self._check()
                if isinstance(error, FlinkishError):
                    raise
                if newer is None or not was_outrun(pending.epoch, newer[1], error):
                    raise self._translated(attempt, error) from error
            # from a newer epoch, and now the epochs wait
            attempt, pending = newer[0], replace(pending, epoch=newer[1])
            self.coordinator.update(pending)
            with self._run.readers.reading(f"checkpoint {pending.id}", pending.epoch):
                try:
                    return writer.write(attempt, pending, self._barriers.of(pending.epoch), full)
                except Exception as error:
                    self._check()
                    raise self._translated(attempt, error) from error

    @staticmethod
    def _translated(attempt: QueryAttempt, error: Exception) -> FlinkishError:
        return translate(error, f"job '{attempt.job.name}'", secret_of(attempt.job.job_id, attempt.job.attempt))

    def _check(self) -> None:
        """Raise an error when the checkpoint must not go on."""
        if self._give_up is not None:
            raise CheckpointError(self._give_up, where=f"job '{self._run.name}'")
        self._run.directory.check_owner(self._run.name)

    def _abort(self, reason: str) -> None:
        """Abort the pending checkpoint, or the clean-up that follows the last one."""
        if self.coordinator.pending is not None:
            self._give_up = self._give_up or reason
        if self._on_spark is not None:
            self._on_spark.end()

    def _fail(self, error: Exception, by_hand: _ByHand | None = None) -> None:
        """Count a checkpoint that has failed, or could not be triggered; fail the attempt if it is one too many. That
        another driver owns the job does not count: the job's own thread finds it out as well."""
        typed = translate(error, f"job '{self._run.name}'")
        reason = self._give_up or f"{type(typed).__name__}: {typed}"
        counts = by_hand is None and not self._closed and not isinstance(typed, FencedError)
        failure = self.coordinator.fail(reason, counts)
        if by_hand is not None:
            by_hand.outcome.set_exception(
                CheckpointError(self._give_up, where=f"job '{self._run.name}'") if self._give_up else typed
            )
        level = logging.DEBUG if self._closed else logging.WARNING
        _LOG.log(level, "job '%s': a checkpoint failed: %s", self._run.name, reason)
        if failure is None:
            return
        failure.__cause__ = error
        try:
            self._run.attempt.fail(failure)
        except Exception as storage:
            # the attempt fails all the same, only later: it is the process of its epochs that was not told
            _LOG.warning("job '%s': the query could not be asked to end: %s", self._run.name, storage)
