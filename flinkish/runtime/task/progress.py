"""Says what the tasks of a worker do while an epoch runs: records, watermarks, and calls that do not return.

    <query>/progress/<token>.json     the progress of one worker process in the running epoch

Rule: nothing is counted or noted for this view alone, so a record costs nothing more. A thread of the worker looks at
counters that exist anyway, and at the stack of the thread that runs the task: the loops of operators take records from
a list iterator named ``arriving``, which knows how many of them are left.

Rule: the view never harms the job. A file that cannot be written is tried again later; one that cannot be read counts
as missing. Files are deleted with their epoch or attempt, and nothing depends on them. Frames of user functions are
never looked into (that would change what ``locals()`` returns there), only the engine's frames that call them.

Executors may share nothing with the driver but the job directory, and Spark's accumulators arrive when a task has
ended, so these files are the one channel for all deployments. On object stores they are written seldom
(`interval_s`), and never in epochs that are shorter than that.
"""

from __future__ import annotations

import os
import posixpath
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import MAX_TRACEBACK, FlinkishError, redact, shortened
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.failure import ITERATORS, OWN_ROOT, input_and_key, left_of, operator_of, record_in_work
from flinkish.runtime.job.operator import StreamOperator
from flinkish.runtime.job.report import TaskPlace
from flinkish.runtime.task.stack_samples import SampleBoard, SampledThread, SampleFiles, StackSampler
from flinkish.storage.paths import FileKind, check_below, is_local, local_path, make_private
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import storage_of

if TYPE_CHECKING:
    from flinkish.runtime.task.task import EpochStamp, Task

#: Least time between two looks at a task, and between two writes of a progress file on a local file system.
LOOK_S = 1.0
#: Least time between two writes, and between two reads by the driver, on object stores and other remote storage.
REMOTE_INTERVAL_S = 10.0
#: A thread that has seen no task for so long ends; the next task starts another one.
IDLE_S = 10.0
#: Time without a further try after a file could not be written.
_RETRY_S = 60.0

#: files of `ProgressFiles.note`
_NOTES = "work-"
_OPERATORS = os.path.join(OWN_ROOT, "runtime", "operators") + os.sep


@dataclass(frozen=True)
class SlowCall:
    """A call of an operator's function that has not returned for long."""

    #: tells apart the calls of a task
    number: int
    #: how often a warning was due: first after the limit, then each time that the call has taken twice as long
    warnings: int
    #: name and uid of the operator
    operator: str
    uid: str
    #: the record, or the timer, that the function was called with; None: it is not known
    record: str | None
    #: input and key of the record as errors give them, such as ``, input 2, key 'a'``; "": there are none
    details: str
    running_ms: int
    #: the stack of the call, the outermost frame first
    stack: str


@dataclass(frozen=True)
class TaskProgress:
    """The figures of one task in the running epoch. They are those of a try: the epoch may fail and run again."""

    vertex: int
    subtask: int
    records_in: int = 0
    #: records sent to other vertices, and those written to sinks, which have not committed them
    records_out: int = 0
    sink_records: int = 0
    watermark_ms: int | None = None
    #: whether the task has handled the barrier of the epoch
    done: bool = False
    place: TaskPlace | None = None
    slow_call: SlowCall | None = None
    #: how long it has been at work on the epoch, without what it has waited for Spark's JVM; it grows as long as the
    #: task runs, so what is told again as it was is no news
    busy_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True)
class WorkerProgress(StoredFile):
    """The progress of the tasks of one worker process."""

    NAME = "{}.json"
    PART = "[0-9a-f]{32}"
    VERSION = OLDEST = 0
    FOLDER = "<query>/progress"
    WHEN = "while an epoch runs"
    LENIENT = True
    KIND = FileKind.PROGRESS
    REMEDY = "nothing need be done: it is written anew"

    attempt: int
    epoch: int
    #: time since the first task of the epoch has begun in this worker
    running_ms: int
    tasks: tuple[TaskProgress, ...]


@dataclass(frozen=True)
class EpochProgress:
    """The progress of an epoch that runs."""

    epoch: int
    #: time since the first task has begun
    running_ms: int
    #: records that have entered the job, and records that were written to sinks and are not committed
    records_in: int
    records_out: int
    #: the lowest watermark of all tasks behind a shuffle that have one
    watermark_ms: int | None
    tasks: tuple[TaskProgress, ...]

    @staticmethod
    def of(job: JobDescriptor, workers: Iterable[WorkerProgress]) -> EpochProgress:
        """The sum of what the workers say of one epoch. If Spark has tried a task again, its last try counts."""
        workers = list(workers)
        tasks: dict[tuple[int, int], TaskProgress] = {}
        for one in (task for worker in workers for task in worker.tasks):
            before = tasks.get((one.vertex, one.subtask))
            if before is None or _try_of(one) >= _try_of(before):
                tasks[one.vertex, one.subtask] = one
        sources = {vertex.id for vertex in job.vertices if vertex.source is not None}
        # what a split of a source has reached is no watermark of the job before others have reached it, too
        watermarks = (
            task.watermark_ms for task in tasks.values() if task.vertex not in sources and task.watermark_ms is not None
        )
        return EpochProgress(
            workers[0].epoch,
            max(worker.running_ms for worker in workers),
            sum(task.records_in for task in tasks.values() if task.vertex in sources),
            sum(task.sink_records for task in tasks.values()),
            min(watermarks, default=None),
            tuple(tasks[key] for key in sorted(tasks)),
        )

    def running_for(self, running_ms: int) -> EpochProgress:
        """The same progress of an epoch that has been running for so long."""
        return replace(self, running_ms=running_ms)


def _try_of(task: TaskProgress) -> tuple[int, int]:
    return (0 if task.place is None else task.place.attempt), task.records_in


# ---------------------------------------------------------------------- files


def interval_s(query: str) -> float:
    """The time between two writes, and two reads, of the progress files of a query's directory."""
    return LOOK_S if is_local(query) else REMOTE_INTERVAL_S


class ProgressFiles:
    """The progress files of a query. Workers write theirs over and over; the driver reads and deletes them all."""

    def __init__(self, query: str) -> None:
        self._directory = posixpath.join(query, "progress")
        self._worker = uuid.uuid4().hex

    def prepare(self) -> None:
        """Delete what earlier attempts have left, and make the directory. A worker does not make it, so one that lives
        longer than its attempt leaves no file."""
        self.clear()
        local = local_path(self._directory)
        if local is not None:
            with suppress(OSError):
                make_private(local)

    def clear(self) -> None:
        """Delete the directory with all files."""
        with suppress(OSError):
            storage_of(self._directory).delete_directory(self._directory)

    def write(self, progress: WorkerProgress) -> None:
        """Write the file of this worker."""
        data, path = progress.encoded(), progress.path_in(self._directory, self._worker)
        local = local_path(path)
        if local is None:
            storage_of(path).write(path, data)
            return
        with open(os.open(f"{local}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        os.replace(f"{local}.new", local)

    def note(self, task: str, pid: int | None = None) -> None:
        """Note in a local file of this or another process which task runs; "": none does. It stays if the process is
        killed."""
        local = local_path(self._directory)
        if local is None:
            return
        # not kept open: a worker lives longer than its job, whose file system may be unmounted or made read-only
        with suppress(OSError):
            file = os.open(os.path.join(local, f"{_NOTES}{pid or os.getpid()}"), os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                # whole, for the number of the subtask is at its end; what is left of a longer one is behind the zero
                os.pwrite(file, task.encode() + b"\0", 0)
            finally:
                os.close(file)

    def noted(self) -> dict[int, str]:
        """Process -> the task that it has noted, of processes of this machine or of a directory that they share."""
        storage, found = storage_of(self._directory), dict[int, str]()
        for entry in storage.list(self._directory):
            with suppress(OSError, ValueError):
                data = storage.read(entry.path).partition(b"\0")[0] if entry.name.startswith(_NOTES) else b""
                found |= {int(entry.name[len(_NOTES) :]): data.decode(errors="ignore")} if data else {}
        return found

    def read(self) -> dict[str, WorkerProgress]:
        """File name -> its content. Files that are damaged, too long or of other names are left out."""
        found: dict[str, WorkerProgress] = {}
        for entry in storage_of(self._directory).list(self._directory):
            worker = WorkerProgress.parts_of(entry.name) if entry.is_file else None
            with suppress(FlinkishError, OSError, ValueError):
                check_below(self._directory, entry.path)
                progress = None if worker is None else WorkerProgress.read(self._directory, *worker)
                found |= {} if progress is None else {entry.name: progress}
        return found

    def delete(self, name: str) -> None:
        """Delete a file that `read` has returned."""
        with suppress(OSError):
            storage_of(self._directory).delete(posixpath.join(self._directory, name))


# ---------------------------------------------------------------------- looking at a task


@dataclass
class _Run:
    """A task at work, and the thread that runs it."""

    task: Task
    stamp: EpochStamp
    thread: int
    #: when it has begun
    begun_s: float
    #: what was sent before: records to other vertices, records to sinks; and the bytes that had come and gone
    sent: tuple[int, int, int, int]
    #: the call in which the task was seen last, and the time at which it was seen there first
    call: tuple[Any, ...] | None = None
    since_s: float = 0.0
    number: int = 0
    slow: SlowCall | None = None


class ProgressReporter:
    """Looks at the tasks of a worker, of which one runs at a time, and publishes their progress.

    Args:
        job: the job of the tasks.
        publish: is given the progress at most every ``every_s`` seconds, and at once with each warning of a slow call.
            Its errors are ignored, and no progress is published for a while.
        every_s: time between two publications; an epoch that is shorter is never published.
        clock: gives the time in seconds.
        note: is given the name of each task that begins to run, and "" when it has ended.
        board: where stacks of the tasks may be asked for; None: nobody asks.
    """

    def __init__(
        self,
        job: JobDescriptor,
        publish: Callable[[WorkerProgress], None],
        every_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] = lambda task: None,
        board: SampleBoard | None = None,
    ) -> None:
        self._note = note
        self._sampler = None if board is None else StackSampler(board, self._thread_of_task, every_s)
        self._job = job
        self._publish = publish
        self._every_s = every_s
        self._clock = clock
        self._limit_s = job.settings.slow_call_warning_ms / 1000
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._running: _Run | None = None
        self._epoch: int | None = None
        #: when the first task of the epoch has begun, and when progress was published last
        self._begun_s = self._published_s = 0.0
        self._done: dict[tuple[int, int], TaskProgress] = {}
        #: whether anything has happened since the last publication
        self._changed = False

    @contextmanager
    def of_run(self, task: Task, stamp: EpochStamp) -> Iterator[None]:
        """While the block runs, the calling thread runs this task in an epoch."""
        sent = (*task.chain.sent(), task.bytes_in, task.bytes_out)
        self._begin(_Run(task, stamp, threading.get_ident(), self._clock(), sent))
        self._note(task.name)
        try:
            yield
        except BaseException:
            self._note("")
            with self._lock:
                self._running = self._epoch = None
            raise
        with self._lock:
            if self._running is not None:
                self._done[task.vertex.id, task.subtask] = self._figures(self._running, 0, True)
            self._running = None
        self._note("")

    def _begin(self, run: _Run) -> None:
        with self._lock:
            if run.stamp.epoch != self._epoch:
                self._epoch, self._begun_s, self._done = run.stamp.epoch, self._clock(), {}
            self._running, self._changed = run, True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="flinkish-progress", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        wait_s = min(LOOK_S, self._limit_s / 2 or LOOK_S)
        idle_s = 0.0
        while True:
            time.sleep(wait_s)
            self.look()
            if self._sampler is not None:
                self._sampler.look()
            with self._lock:
                idle_s = 0.0 if self._running is not None else idle_s + wait_s
                if idle_s >= IDLE_S:
                    self._thread = None
                    return

    @contextmanager
    def _thread_of_task(self) -> Iterator[SampledThread | None]:
        """The thread that runs a task, which does not end while the block runs; None: no task runs."""
        with self._lock:
            run = self._running
            yield None if run is None else SampledThread(run.task.vertex.id, run.task.subtask, run.thread)

    def give_up(self) -> None:
        """Have the task that runs, if any, end with the record in work and fail with `EpochTimeoutError`. To be called
        until the epoch has ended, since the records before that one go on to further loops, and to further tasks. The
        epoch must not be committed: it has lost records."""
        with self._lock:
            run = self._running
            if run is not None:
                run.task.given_up = True
                TaskStack(sys._current_frames().get(run.thread)).end_loops()

    def look(self) -> None:
        """Look at the task that runs, and publish the progress if it is time to. Called by a thread of this object."""
        with self._lock:
            now_s = self._clock()
            progress, warns = self._progress(now_s)
            wanted = warns or self._changed and min(now_s - self._begun_s, now_s - self._published_s) >= self._every_s
            if progress is None or not wanted:
                return
            self._published_s, self._changed = now_s, self._running is not None
        try:
            self._publish(progress)
        except Exception:
            with self._lock:
                self._published_s = now_s + _RETRY_S - self._every_s

    def _progress(self, now_s: float) -> tuple[WorkerProgress | None, bool]:
        """The progress of the epoch, and whether a warning is due."""
        run, warns = self._running, False
        if self._epoch is None:
            return None, False
        tasks = dict(self._done)
        if run is not None:
            stack = TaskStack(sys._current_frames().get(run.thread))
            warns = self._watch(run, stack, now_s)
            tasks[run.task.vertex.id, run.task.subtask] = self._figures(run, stack.unfinished(), False)
        running_ms = int((now_s - self._begun_s) * 1000)
        return WorkerProgress(self._job.attempt, self._epoch, running_ms, tuple(tasks.values())), warns

    def _figures(self, run: _Run, unfinished: int, done: bool) -> TaskProgress:
        task = run.task
        now = (*task.chain.sent(), task.bytes_in, task.bytes_out)
        sent, written, bytes_in, bytes_out = (each - before for each, before in zip(now, run.sent))
        busy_s = self._clock() - run.begun_s - run.stamp.waits.input_s - run.stamp.waits.output_s
        records, slow = max(task.records_in - unfinished, 0), None if done else run.slow
        watermark_ms = task.watermark_ms if MIN_TIMESTAMP_MS < task.watermark_ms < MAX_WATERMARK_MS else None
        of_task = (task.vertex.id, task.subtask, records, sent + written, written, watermark_ms, done)
        busy_ms = round(max(busy_s, 0.0) * 1000, 3)
        return TaskProgress(*of_task, run.stamp.place, slow, busy_ms, bytes_in, bytes_out)

    def _watch(self, run: _Run, stack: TaskStack, now_s: float) -> bool:
        """Compare the call in which the task is with that of the last look; returns whether a warning is due."""
        call = stack.call() if self._limit_s else None
        if call is None or call != run.call:
            run.call, run.since_s, run.number, run.slow = call, now_s, run.number + 1, None
            return False
        running_s, warnings = now_s - run.since_s, 0 if run.slow is None else run.slow.warnings
        if running_s >= self._limit_s * 2**warnings:
            run.slow = stack.slow_call(
                run.number, warnings + 1, int(running_s * 1000), self._job.settings.names_records
            )
            return True
        if run.slow is not None:
            run.slow = replace(run.slow, running_ms=int(running_s * 1000))
        return False


def reporter_to_files(job: JobDescriptor, query: str) -> ProgressReporter:
    """What reports the progress of the tasks of a worker by a file in the directory of the query."""
    files, board = ProgressFiles(query), SampleFiles(query) if job.settings.flame_graphs else None
    return ProgressReporter(job, files.write, interval_s(query), note=files.note, board=board)


def watched(reporter: ProgressReporter | None, task: Task, stamp: EpochStamp) -> AbstractContextManager[None]:
    """While the block runs, the calling thread runs this task in an epoch, and its progress is reported."""
    return nullcontext() if reporter is None else reporter.of_run(task, stamp)


class TaskStack:
    """The stack of a thread that runs a task, as of one moment: which operator it is in, at which record of its batch,
    and what the operator has called."""

    def __init__(self, innermost: FrameType | None) -> None:
        frames = []
        # the thread goes on meanwhile: Python 3.11 was seen to give something else for the caller of a frame
        while isinstance(innermost, FrameType):
            frames.append(innermost)
            innermost = innermost.f_back
        #: the outermost first
        self._frames = frames[::-1]
        self._operators = [index for index, frame in enumerate(self._frames) if _is_operator(frame)]
        #: index of the first frame of what the innermost operator has called; the end of the stack if it is at work
        #: itself, or has called what has no frame
        self._called = len(self._frames)
        if self._operators:
            later = range(self._operators[-1], len(self._frames))
            foreign = (index for index in later if not self._frames[index].f_code.co_filename.startswith(OWN_ROOT))
            self._called = next(foreign, self._called)

    def unfinished(self) -> int:
        """How many records of the batch that the task has begun are not processed yet, as far as the first loop tells
        that is not over; an operator behind another one may have fewer records of the batch, or more."""
        size = None
        for index in self._operators:
            variables = self._frames[index].f_locals
            values = variables.get("values")
            if not isinstance(values, list):
                continue
            size = len(values) if size is None else size
            left = left_of(variables.get("arriving"))
            if left or left is not None and index == self._operators[-1]:
                return size - size * max(len(values) - left - 1, 0) // max(len(values), 1)
        return 0

    def end_loops(self) -> None:
        """Leave nothing for the engine's loops over records to take, so that they end with the record in work."""
        for frame in self._frames:
            variables = _variables(frame)
            for loop in (variables.get("arriving"), variables.get("awaiting")):
                if type(loop) in ITERATORS:
                    loop.__setstate__(sys.maxsize)  # type: ignore[union-attr]

    def call(self) -> tuple[Any, ...] | None:
        """What identifies the call that the innermost operator has made: if two looks at a task give the same, it has
        not returned in between. None: the task is in no operator.

        It is the way from the first operator to the call, with what changes there from record to record: positions,
        lengths and numbers, and which objects the variables are. No object is kept alive for it."""
        if not self._operators:
            return None
        return tuple(
            (id(frame.f_code), frame.f_lasti, *(map(_trace, _variables(frame).values())))
            for frame in self._frames[self._operators[0] : self._called]
        )

    def slow_call(self, number: int, warnings: int, running_ms: int, records: bool = True) -> SlowCall:
        """The description of the call, for the limits of `SlowCall`. ``records``: whether it may name record and
        key."""
        frame = self._frames[self._operators[-1]]
        operator = operator_of(frame.f_locals)
        assert operator is not None
        begin = self._called if self._called < len(self._frames) else self._operators[-1]
        lines = traceback.StackSummary.extract((each, each.f_lineno) for each in self._frames[begin:]).format()
        return SlowCall(
            number,
            warnings,
            operator.context.name,
            operator.context.uid,
            self._record() if records else None,
            redact(input_and_key(operator, frame.f_locals, records)),
            running_ms,
            redact(shortened("".join(lines).rstrip("\n"), MAX_TRACEBACK)),
        )

    def _record(self) -> str | None:
        """The record in work, as text."""
        frames = reversed(self._frames[self._operators[-1] : self._called])
        return record_in_work(map(_variables, frames))[0]


def _is_operator(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OPERATORS) and isinstance(frame.f_locals.get("self"), StreamOperator)


def _variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a frame of the engine, which is an operator's or called by one; nothing of other frames."""
    return frame.f_locals if frame.f_code.co_filename.startswith(OWN_ROOT) else {}


def _trace(value: Any) -> Any:
    """What tells a variable's value from later ones, without a reference to it."""
    kind = type(value)
    if kind in (int, float, bool):
        return value
    if kind in (list, dict, set):
        return id(value), len(value)
    return id(value), left_of(value)
