"""The execution graph: vertices, their subtasks, and the executions of each subtask, one per attempt of the job.

Rule: the graph knows only what tasks report, at the end of an epoch and now and then while a long one runs, and whether
one runs. With the first report, an execution is RUNNING. What it does in an epoch that runs after it was heard of last
is not known; between epochs it has nothing to do. Its location is that of the last epoch in which it had something to
do, because Spark places the tasks of every epoch anew.

Any thread may ask for a description; epochs, starts and ends are reported by one thread at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.errors import FlinkishError, redact
from flinkish.jobmanager.back_pressure import backpressured_ms, sources_before
from flinkish.jobmanager.job.description import (
    NO_RATES,
    EdgeDescription,
    ExecutionDescription,
    OperatorDescription,
    RatesDescription,
    StandbyDescription,
    SubtaskDescription,
    TaskFigures,
    VertexDescription,
)
from flinkish.jobmanager.job.lifecycle import (
    EXECUTION_TRANSITIONS,
    ExecutionState,
    StateMachine,
    Story,
    aggregated_state,
    shortened,
)
from flinkish.jobmanager.operator_ids import operator_id
from flinkish.jobmanager.rates import SPAN_MS, Rates, Totals
from flinkish.runtime.epoch.steps import NO_BACKLOG, Backlog, EpochReport
from flinkish.runtime.job.accumulators import merged, results_of
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.task.progress import EpochProgress, TaskProgress

_S = ExecutionState
#: how a description names the fields of a place
_PLACE = ("host", "executor", "stage", "partition", "task_attempt", "task_id", "pid")

NO_COUNTS: dict[str, dict[str, int]] = {}

#: The most bits of a number that is shown as one: JSON cannot hold integers of any length.
_SHOWN_BITS = 1024
#: The most characters of an accumulator's value that are shown, unless it is a number.
_SHOWN_LENGTH = 200


def shown_accumulators(totals: bytes, classes: ProgramClasses) -> dict[str, float | str]:
    """The results of the accumulators of user functions: numbers as they are, everything else as text, also why there
    is no result."""
    results = results_of(totals, classes, failed=lambda error: error.what)
    return {name: _shown(value) for name, value in results.items()}


def _shown(value: Any) -> float | str:
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _SHOWN_BITS):
        return value
    return abbreviated(value, _SHOWN_LENGTH)


class Execution:
    """One attempt of one subtask: its state machine, and the figures that its tasks have reported so far."""

    #: The most events that the story keeps. An execution has few; the bound is for safety.
    MAX_EVENTS = 16

    #: The most splits that it names.
    MAX_SPLITS = 64

    #: The most additions to accumulators that wait to be merged.
    _MAX_ADDED = 16

    def __init__(
        self, vertex: VertexDescriptor, subtask: int, attempt: int, clock: Clock, classes: ProgramClasses = NO_CLASSES
    ) -> None:
        self.vertex = vertex
        self.subtask = subtask
        self.attempt = attempt
        self.name = vertex.task_name(subtask)
        self.machine = StateMachine(
            EXECUTION_TRANSITIONS, f"task '{self.name}', attempt {attempt}", Story(self.MAX_EVENTS), clock
        )
        self.failure: str | None = None
        self._place: TaskPlace | None = None
        self._splits: dict[str, None] = {}
        self._figures = TaskFigures()
        self._classes = classes
        #: encoded: what the task has added to accumulators, and what it has added since that was merged
        self._accumulators = b""
        self._added: list[bytes] = []
        #: the epoch that runs, if something is known of it, and what the task has done in it so far
        self._epoch: int | None = None
        self._running = self._nothing = TaskProgress(vertex.id, subtask)
        #: since when, and up to when, it is known what the task does; None: nothing was told yet
        self._since_ms = 0
        self.told_ms: int | None = None

    def begin(self, cause: str, since_ms: int = 0) -> None:
        """Go to RUNNING, now that something is known of the first epoch of the attempt, whether or not the subtask has
        work in it. ``since_ms``: when that has begun."""
        self._since_ms = since_ms
        if self.machine.try_to(_S.INITIALIZING, "the first epoch has been planned"):
            self.machine.to(_S.RUNNING, cause)

    def runs(self, epoch: int, progress: TaskProgress | None, now_ms: int) -> None:
        """Note what the task has done so far in the epoch that runs; None: nothing is known of it, or nothing runs.
        What is told again as it was is no news."""
        before = self._running
        self._epoch, self._running = None, self._nothing
        if progress is not None and not self.machine.terminal:
            self._epoch, self._running = epoch, progress
            self.told_ms = self.told_ms if progress == before else now_ms

    def take(self, report: TaskReport, epoch: int, backpressured_ms: float = 0.0) -> None:
        """Add what the task reports of an epoch that is done, and how long it was held back."""
        self._figures = self._figures.plus(report, epoch, backpressured_ms)
        if report.accumulators:
            self._added.append(report.accumulators)
            if len(self._added) >= self._MAX_ADDED:
                self._merge()
        self._read(report.splits)
        if report.place is not None:
            self._place = report.place
        if report.finished:
            self.machine.try_to(_S.FINISHED, f"all input has ended in epoch {epoch}")

    @property
    def totals(self) -> Totals:
        """The figures from which rates are taken, with those of the epoch that runs."""
        done, running = self._figures, self._running
        return Totals(
            done.records_in + running.records_in,
            done.records_out + running.records_out,
            done.bytes_in + running.bytes_in,
            done.bytes_out + running.bytes_out,
            done.busy_ms + running.busy_ms,
            done.backpressured_ms,
        )

    def _merge(self) -> bytes:
        if self._added:
            self._accumulators = merged(self._accumulators, self._added, self._classes)
            self._added.clear()
        return self._accumulators

    def _read(self, splits: Iterable[str]) -> None:
        """Remember the splits that were read last; a source of files reads new ones as long as the job runs."""
        for split in splits:
            self._splits.pop(split, None)
            self._splits[split] = None
        while len(self._splits) > self.MAX_SPLITS:
            del self._splits[next(iter(self._splits))]

    def fail(self, failure: str) -> None:
        """Go to FAILED: this execution is the one that has failed the attempt."""
        self.failure = failure
        self.machine.try_to(_S.FAILED, failure)

    def cancel(self, cause: str) -> None:
        """Go to CANCELED, unless the execution has ended already: the attempt is over."""
        if self.machine.may(_S.CANCELING):
            self.machine.to(_S.CANCELING, cause)
        self.machine.try_to(_S.CANCELED, cause)

    def describe(self, rates: RatesDescription | None = None) -> ExecutionDescription:
        """The execution as of now. ``rates``: those of one that has not ended."""
        running, totals = self._running, self.totals
        told_ms = self._since_ms if self.told_ms is None else self.told_ms
        place, done = running.place or self._place, self._figures
        watermark_ms = done.watermark_ms if running.watermark_ms is None else running.watermark_ms
        return ExecutionDescription(
            **vars(done) | {"watermark_ms": watermark_ms, "metrics": dict(done.metrics)},
            attempt=self.attempt,
            state=self.machine.state.name,
            times_ms=self.machine.times_ms,
            durations_ms=self.machine.durations_ms,
            **dict(zip(_PLACE, vars(place).values() if place else ())),
            splits=tuple(sorted(self._splits)),
            told_ms=self.told_ms,
            idle_ms=round(max(told_ms - self._since_ms - totals.busy_ms - totals.backpressured_ms, 0.0), 3),
            rates=NO_RATES if self.machine.terminal else rates,
            running_epoch=self._epoch,
            running_records_in=running.records_in,
            running_records_out=running.records_out,
            running_bytes_in=running.bytes_in,
            running_bytes_out=running.bytes_out,
            running_busy_ms=running.busy_ms,
            slow_call=running.slow_call,
            accumulators=shown_accumulators(accumulators, self._classes) if (accumulators := self._merge()) else {},
            failure=self.failure,
        )


class ExecutionGraph:
    """The executions of a job: the current one of each subtask, and descriptions of a bounded number of earlier ones.

    Args:
        job: the job graph.
        clock: the clock that gives the times of the transitions.
        ended: called with each execution that has ended, in the thread that reported the end to the graph.
    """

    #: The most earlier attempts of a subtask whose descriptions are kept.
    MAX_EARLIER = 16

    def __init__(
        self,
        job: JobDescriptor,
        clock: Clock | None = None,
        ended: Callable[[Execution], None] = lambda execution: None,
    ) -> None:
        self._job = job
        self._clock = clock or SystemClock()
        self._ended = ended
        self._lock = threading.RLock()
        self._current: dict[tuple[int, int], Execution] = {}
        self._earlier: dict[tuple[int, int], deque[ExecutionDescription]] = {}
        self._told: set[tuple[int, int]] = set()
        #: uid of a source -> what the last epoch has left of it
        self._backlogs: dict[str, Backlog] = {}
        #: when the last epoch of the attempt was done; None: none was
        self._done_ms: int | None = None
        self._sources_before = sources_before(job)
        #: (host, executor, process) -> its standby tasks, each with the number of its copied files
        self._standby: dict[tuple[str, str, int], dict[tuple[int, int], int]] = {}
        self._begun = False
        #: whether an epoch runs, as far as this driver knows
        self._at_work = False
        self._rates = Rates()
        self._edges = {vertex.id: tuple(_edges(job, vertex.id)) for vertex in job.vertices}
        self._ids = {one.uid: operator_id(one.uid) for vertex in job.vertices for one in vertex.operators}

    # ------------------------------------------------------------------ what happens

    def attempt_started(self, attempt: int) -> None:
        """Replace all executions by SCHEDULED ones: the job begins to run, for the first time or again."""
        with self._lock:
            for execution in self._current.values():
                # executions of an attempt that was stopped, and that begins again because its stop has failed
                execution.cancel(f"attempt {attempt} of the job begins")
            self._tell()
            self._told.clear()
            self._standby.clear()
            self._begun, self._at_work, self._done_ms, self._backlogs = False, False, None, {}
            for vertex in self._job.vertices:
                for subtask in range(vertex.parallelism):
                    self._renew(vertex, subtask, attempt)

    def _renew(self, vertex: VertexDescriptor, subtask: int, attempt: int) -> None:
        place = (vertex.id, subtask)
        before = self._current.get(place)
        if before is not None:
            kept = self._earlier.setdefault(place, deque(maxlen=self.MAX_EARLIER))
            kept.append(before.describe())
        execution = self._current[place] = Execution(vertex, subtask, attempt, self._clock, self._job.classes)
        execution.machine.to(_S.SCHEDULED, f"attempt {attempt} of the job")

    def query_started(self) -> None:
        """Let all executions be DEPLOYING: Spark has accepted the query."""
        with self._lock:
            for execution in self._current.values():
                execution.machine.try_to(_S.DEPLOYING, "the query has started")

    def epoch_begun(self) -> None:
        """From now on nothing is known but what the tasks say: until now they had nothing to do."""
        with self._lock:
            self._wait()
            self._at_work = True

    def _wait(self) -> None:
        """While no epoch runs, it is known that no task has anything to do."""
        if self._begun and not self._at_work:
            now_ms = self._clock.now_ms()
            for execution in self._current.values():
                if execution.machine.state is _S.RUNNING:
                    execution.told_ms = now_ms

    def epoch_done(self, report: EpochReport) -> None:
        """Take in the report of an epoch that the sinks have committed."""
        with self._lock:
            now_ms, held_before = self._clock.now_ms(), self._held_back()
            self._begin("the first epoch is done", now_ms - report.duration_ms)
            self._runs(None)
            self._wait()
            self._backlogs = report.backlogs(self._job)
            gap_ms = 0 if self._done_ms is None else max(now_ms - self._done_ms - report.duration_ms, 0)
            held_ms = backpressured_ms(self._job, report, self._held_back(), gap_ms, held_before)
            for task in report.tasks:
                place = task.vertex, task.subtask
                if place in self._current:
                    self._current[place].take(task, report.epoch, held_ms.pop(place, 0.0))
                if task.place is not None and self._job.settings.standby_replicas:
                    self._standby[task.place.host, task.place.executor, task.place.pid] = task.standby
            self._done_ms = now_ms
            self._look(now_ms)
            if report.end_of_input:
                for execution in self._current.values():
                    if execution.vertex.level == 0:
                        execution.machine.try_to(_S.FINISHED, f"all input has ended in epoch {report.epoch}")
            self._tell()

    def epoch_running(self, progress: EpochProgress) -> None:
        """Take in how far the tasks of the running epoch are."""
        with self._lock:
            now_ms = self._clock.now_ms()
            self._begin("the first epoch runs", now_ms - progress.running_ms)
            self._runs(progress)
            self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        self._rates.look(now_ms, (execution.totals for execution in self._current.values()))

    def _held_back(self) -> frozenset[int]:
        """The vertices with others behind them before which the last epoch has left records in a source."""
        return frozenset(one for one, uids in self._sources_before.items() if not uids.isdisjoint(self._backlogs))

    def _runs(self, progress: EpochProgress | None) -> None:
        found = {} if progress is None else {(task.vertex, task.subtask): task for task in progress.tasks}
        self._at_work, now_ms = progress is not None, self._clock.now_ms()
        for place, execution in self._current.items():
            execution.runs(-1 if progress is None else progress.epoch, found.get(place), now_ms)

    def _begin(self, cause: str, since_ms: int) -> None:
        if not self._begun:
            self._begun = True
            self._rates.begin(since_ms, len(self._current))
            for execution in self._current.values():
                execution.begin(cause, since_ms)

    def attempt_failed(self, failure: FlinkishError) -> None:
        """End all executions: the task that the failure names is FAILED, the others are CANCELED."""
        text = shortened(f"{type(failure).__name__}: {failure.message}")
        with self._lock:
            self._runs(None)
            for execution in self._current.values():
                # tasks are found by name: if two tasks have the same name, both are said to have failed
                if execution.name == failure.task:
                    execution.fail(text)
            for execution in self._current.values():
                execution.cancel(text)
            self._tell()

    def job_done(self, finished: bool, cause: str) -> None:
        """The job has ended: with ``finished`` all tasks are FINISHED, otherwise they are CANCELED."""
        with self._lock:
            self._runs(None)
            for execution in self._current.values():
                if finished:
                    # if the input was empty, no task has reported
                    execution.begin("there is nothing to run")
                    execution.machine.try_to(_S.FINISHED, cause)
                execution.cancel(cause)
            self._tell()

    def _tell(self) -> None:
        for place, execution in self._current.items():
            if execution.machine.terminal and place not in self._told:
                self._told.add(place)
                self._ended(execution)

    # ------------------------------------------------------------------ what can be asked

    def describe(self, counts: Mapping[str, dict[str, int]] = NO_COUNTS) -> tuple[VertexDescription, ...]:
        """All vertices as of now. ``counts``: operator uid -> the engine's counts for that operator."""
        with self._lock:
            self._wait()
            long_ago_ms = self._clock.now_ms() - SPAN_MS
            totals = ((one.told_ms, one.totals) for one in self._current.values())
            found = self._rates.now((None if (ms or 0) < long_ago_ms else ms, each) for ms, each in totals)
            rates = dict(zip(self._current, found, strict=True))
            return tuple(self._describe(vertex, counts, rates) for vertex in self._job.vertices)

    def _describe(
        self,
        vertex: VertexDescriptor,
        counts: Mapping[str, dict[str, int]],
        rates: Mapping[tuple[int, int], RatesDescription | None],
    ) -> VertexDescription:
        subtasks = tuple(self._subtasks(vertex, rates))
        current = [subtask.current for subtask in subtasks]
        states = {execution.state for execution in current}
        backlog = self._backlogs.get(vertex.head.uid, NO_BACKLOG)
        watermarks = [execution.watermark_ms for execution in current if execution.watermark_ms is not None]
        return VertexDescription(
            id=vertex.id,
            uid=vertex.head.uid,
            name=redact(vertex.name),
            level=vertex.level,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            keyed=vertex.keyed,
            operators=tuple(self._operator(op, counts) for op in vertex.operators),
            job_vertex_id=self._ids[vertex.head.uid],
            edges=self._edges[vertex.id],
            inputs=tuple(sorted({edge.vertex for edge in vertex.inputs})),
            state=aggregated_state(states),
            subtasks=subtasks,
            records_in=sum(execution.records_in for execution in current),
            records_out=sum(execution.records_out for execution in current),
            watermark_ms=min(watermarks, default=None),
            state_bytes=sum(sizes) if (sizes := [one.state_bytes for one in current if one.state_bytes]) else None,
            backlog=None if self._done_ms is None else backlog.records,
            backlog_splits=backlog.splits,
            backlog_age_ms=backlog.age_ms,
            running_records_in=sum(execution.running_records_in for execution in current),
            running_records_out=sum(execution.running_records_out for execution in current),
        )

    def _subtasks(
        self, vertex: VertexDescriptor, rates: Mapping[tuple[int, int], RatesDescription | None]
    ) -> Iterator[SubtaskDescription]:
        for subtask in range(vertex.parallelism):
            place = (vertex.id, subtask)
            execution = self._current.get(place)
            if execution is not None:
                earlier = tuple(self._earlier.get(place, ()))
                yield SubtaskDescription(
                    subtask,
                    execution.name,
                    execution.describe(rates[place]),
                    earlier,
                    tuple(self._standby_of(place)),
                )

    def _standby_of(self, task: tuple[int, int]) -> Iterator[StandbyDescription]:
        """The executors with standby tasks of a task; several processes of one share what is copied."""
        found: dict[tuple[str, str], int] = {}
        for (host, executor, _), standby in self._standby.items():
            if task in standby:
                found[host, executor] = max(standby[task], found.get((host, executor), 0))
        return (StandbyDescription(*where, files) for where, files in sorted(found.items()))

    def _operator(self, operator: OperatorDescriptor, counts: Mapping[str, dict[str, int]]) -> OperatorDescription:
        uid = operator.uid
        name, description = redact(operator.name), redact(operator.description)
        return OperatorDescription(uid, name, self._ids[uid], operator.uid_given, description, counts.get(uid, {}))


def _edges(job: JobDescriptor, target: int) -> Iterator[EdgeDescription]:
    """The edges that lead to a vertex."""
    for vertex in job.vertices:
        for operator in vertex.operators:
            for edge in operator.edges:
                if edge.target == target:
                    yield EdgeDescription(vertex.id, edge.partitioner.ship_strategy, edge.tag)
