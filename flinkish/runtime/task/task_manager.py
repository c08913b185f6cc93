"""The task manager: it holds the tasks of a job in a worker, with the versions of their state, and runs them.

There is one per job and worker process, and it is the only entry from Spark's function into the runtime. Spark calls it
with one task at a time, from the stored state to the barrier; so most of what Kafka Streams' TaskManager does for many
tasks at once is done by Spark, or by the task itself (docs/architecture.md has the table).

Rule: a task's memory is trusted only if the stored state has the very version (token) that this worker has written
last. A task that has failed, or that ran elsewhere in between, is closed dirty and created anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import CorruptStateError, FlinkishError, InternalError, failures_of_user_code, message_of
from flinkish.runtime.epoch.files import EpochFiles, TaskOutput
from flinkish.runtime.exchange.buffer import Buffer, OriginProgress
from flinkish.runtime.exchange.gate import by_edge
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.job.failure import describe_failure
from flinkish.runtime.job.operator import OperatorListener
from flinkish.runtime.job.report import LifecycleCall, Row, TaskHeader
from flinkish.runtime.phases import Clock, Phase, SystemClock, passed
from flinkish.runtime.sources.progress import SourceShare
from flinkish.runtime.task.open_functions import TaskOwners
from flinkish.runtime.task.progress import ProgressReporter, reporter_to_files, watched
from flinkish.runtime.task.source_task import SourceInput, SourceTask
from flinkish.runtime.task.stateful_task import StatefulTask
from flinkish.runtime.task.task import CLEAN_UP_EPOCHS, EpochStamp, Task, TaskId, TaskResult, TaskState
from flinkish.runtime.task.tasks import Tasks

if TYPE_CHECKING:
    pass

#: Maximum number of tasks that are held at once; the least recently used one is closed clean to make room.
MAX_TASKS = 256

#: Maximum number of jobs whose tasks one worker holds at once.
MAX_JOBS = 16

#: Number of records between two checks for due processing-time timers.
PROCESS_STEP_RECORDS = 1_000_000

#: Maximum number of calls of the lifecycle of operators that a worker keeps.
MAX_TRACED = 1_000

_REPORT = "please report this"

#: Approximate number of bytes that standby tasks copy at a time.
STANDBY_STEP_BYTES = 64 * 1024 * 1024

#: Seconds between two tries of a task that waits for storage.
RETRY_S = 1.0

_LOG = logging.getLogger("flinkish.TaskManager")


class StoredTask(NamedTuple):
    """The stored state of a subtask: its encoded header (None if it has never run) and a way to load the body."""

    header: bytes | None
    load_body: Callable[[], bytes | None]


class TaskManager:
    """Holds and runs the tasks of one job in one worker process."""

    def __init__(
        self,
        job: JobDescriptor,
        files: EpochFiles | None = None,
        copies: str | None = None,
        clock: Clock | None = None,
        keyed_state: str = "",
        listener: OperatorListener | None = None,
        read_only: bool = False,
        progress: ProgressReporter | None = None,
    ) -> None:
        """
        Args:
            files: where tasks write committables and changes; None if all of these stay in the rows.
            keyed_state: directory of the files of keyed state; "" means that of ``files``, or that there are none.
            copies: a folder on the executor's disk for copies of state files; None if these are read in place.
            listener: is called with all that each operator receives and emits.
            read_only: whether state files must be neither written nor deleted, as in the replay of an epoch.
            progress: reports what the tasks do; None: it goes to ``files``, if there are any.
        """
        self.job = job
        self._described = partial(describe_failure, records=job.settings.names_records)
        self._listener = listener
        self._files = files
        self._clock = clock or SystemClock()
        #: the last calls of the lifecycle of operators; None: they are not traced
        self.trace = deque[LifecycleCall](maxlen=MAX_TRACED) if job.settings.trace_lifecycle else None
        state = keyed_state or ("" if files is None else files.state)
        self.tasks = Tasks(job, state, copies, listener, read_only, self.trace)
        self._output = TaskOutput(job, files)
        self._updating: threading.Thread | None = None
        self._sources: dict[TaskId, SourceTask] = {}
        self._progress = progress or (None if files is None else reporter_to_files(job, files.query))
        #: knows which worker process of the executor has a task open; None: there is one process only
        self.owners: TaskOwners | None = None
        #: is called when all tasks are closed, since the attempt is over
        self.when_disposed: Callable[[], None] | None = None

    # ------------------------------------------------------------------ one task, one epoch

    def run_task(
        self, vertex: int, subtask: int, stored: StoredTask, buffers: Iterable[Buffer], stamp: EpochStamp
    ) -> tuple[TaskResult | None, list[Row]]:
        """Run one task through an epoch. The result is None if the task has ended before and nothing is written."""
        task_id, descriptor = (vertex, subtask), self.job.vertex(vertex)
        header = self._header(vertex, subtask, stored.header, stamp.time_ms)
        if header.finished:
            self._check_empty(header, buffers)
            return None, []
        try:
            task = self._task(task_id, header, stamp.epoch)
            task.assign(header, stored.load_body, stamp)
            task.add_records(buffers)
            task = self._restored(task)
            with watched(self._progress, task, stamp):
                task.begin()
                task.punctuate()
                while task.process(PROCESS_STEP_RECORDS):
                    task.punctuate()
                task.punctuate()
                passed(Phase.LEVEL_PROCESSED, vertex=vertex, subtask=subtask, level=descriptor.level, epoch=stamp.epoch)
                return self._commit(task, stamp.epoch)
        except failures_of_user_code() as error:
            failure = self._described(error, descriptor.task_name(subtask), stamp.epoch)
            self.tasks.close_dirty(task_id, discard_copies=isinstance(error, CorruptStateError))
            raise failure from failure.__cause__

    def _check_empty(self, header: TaskHeader, buffers: Iterable[Buffer]) -> None:
        records = sum(buffer.header.records for buffer in buffers)
        if records:
            raise InternalError(
                f"{records} records came after the end of all input",
                where=f"job '{self.job.name}', operator uid {header.uid}, subtask {header.subtask}",
                expected="no record",
                hint=_REPORT,
            )

    def _header(self, vertex: int, subtask: int, data: bytes | None, now_ms: int) -> TaskHeader:
        """What the stored state of a task says of it; ``data`` is None for a task that begins, which measures from now
        on how long the splits that it knows are silent."""
        descriptor = self.job.vertex(vertex)
        if data is None:
            watermark_ms = self.job.restored_watermarks.get(vertex, MIN_TIMESTAMP_MS)
            restored = dict(self.job.restored_origins.get(vertex, {}))
            for one in descriptor.inputs if watermark_ms > MIN_TIMESTAMP_MS else ():
                # each task has told at least what follows from what all have told
                for origin in () if one.from_source else one.expected_origins(subtask):
                    restored[by_edge(origin, one.edge)] = one.input_index, watermark_ms, False
            origins = {origin: OriginProgress(*at, now_ms) for origin, at in restored.items()}
            return TaskHeader(descriptor.head.uid, vertex, subtask, watermark_ms=watermark_ms, origins=origins)
        return TaskHeader.decode(
            data,
            f"job '{self.job.name}', vertex '{descriptor.name}', subtask {subtask}",
            self.job.classes,
        )

    def _task(self, task_id: TaskId, header: TaskHeader, epoch: int) -> StatefulTask:
        """The task that this worker holds at the version of the stored state, or a new one. A standby task that it
        replaces leaves it the copies of its files."""
        task = self.tasks.active.get(task_id)
        if task is not None and task.token is not None and task.token != header.token:
            _LOG.info("%s ran elsewhere in between", task.name)
            self.tasks.close_dirty(task_id)
            task = None
        if task is None:
            self.tasks.make_room(MAX_TASKS - 1, epoch)
            task = self.tasks.create(task_id)
            _LOG.debug("%s is created", task.name)
            if self.owners is not None:
                self.owners.take(task_id)
        self.tasks.active.move_to_end(task_id)
        return task

    def _restored(self, task: StatefulTask) -> StatefulTask:
        """Restore a task. If its state cannot be read, all that this worker and its executor's disk hold of it is
        discarded, and it is restored once more, from the files themselves: by the task that is returned. If these are
        damaged as well, CorruptStateError names the file, and the driver goes back to the last checkpoint."""
        try:
            self._restore(task)
            return task
        except CorruptStateError as error:
            _LOG.warning("%s cannot be restored, it is tried once more: %s", task.name, error.what)
            self.tasks.close_dirty(task.task_id, discard_copies=True)
            revived = self.tasks.create(task.task_id, task.directory)
            revived.take_over(task)
            self._restore(revived)
            return revived

    def _restore(self, task: StatefulTask) -> None:
        """Restore a task; one whose storage cannot be reached waits, up to its timeout."""
        while task.needs_restoration:
            try:
                task.restore()
            except FlinkishError as error:
                if isinstance(error, CorruptStateError) or not error.retryable:
                    raise
                task.maybe_init_task_timeout_or_throw(self._clock.now_ms(), error)
                time.sleep(RETRY_S)
            else:
                task.clear_task_timeout()

    def _commit(self, task: StatefulTask, epoch: int) -> tuple[TaskResult, list[Row]]:
        """Handle the barrier of a task that has consumed the input of its epoch."""
        result = task.prepare_commit({standby.task_id: standby.copies for standby in self.tasks.standby.values()})
        with self._output.of_run(epoch) as output:
            rows = output.referenced(task.take_rows())
        task.post_commit(result)
        if result.header.finished:
            del self.tasks.active[task.task_id]
        passed(Phase.STATE_WRITTEN, vertex=task.vertex.id, subtask=task.subtask, epoch=epoch)
        return result, rows

    # ------------------------------------------------------------------ tasks that run elsewhere

    def close_lost(self) -> None:
        """Close the tasks that another worker process of this executor has opened since: their state is out of date. To
        be called between two tasks. Those of sources hold none, and may come back in each epoch: they stay open."""
        for task_id in [] if self.owners is None else self.owners.lost(self.tasks.active):
            _LOG.info("%s runs in another worker process now", self.tasks.name(task_id))
            self.tasks.close_dirty(task_id)

    def keep_standby(self, standby: Set[TaskId]) -> None:
        """Make these the standby tasks of this worker, whose files are copied to the executor's disk in case that they
        move here; not those that run here, and those that have no files."""
        wanted = {task_id for task_id in standby if self.tasks.has_copies(task_id)} - self.tasks.active.keys()
        for task_id in sorted(wanted - self.tasks.standby.keys()):
            self.tasks.create_standby(task_id)

    def update_standby_tasks(self, max_bytes: int = STANDBY_STEP_BYTES) -> int:
        """Copy about ``max_bytes`` of files for the standby tasks; returns how many bytes were copied. Errors are only
        logged, since a task that needs a file fetches it."""
        copied = 0
        for standby in list(self.tasks.standby.values()):
            if copied >= max_bytes:
                break
            try:
                copied += standby.update(max_bytes - copied)
            except FlinkishError as error:
                _LOG.info("files of %s cannot be copied ahead: %s", standby.name, error)
        return copied

    def update_standby_tasks_aside(self, epoch: int) -> None:
        """Run `update_standby_tasks` in a thread: in each epoch until all files are copied, then every few epochs."""
        if epoch % CLEAN_UP_EPOCHS and all(
            task.task_state is TaskState.RUNNING for task in self.tasks.standby.values()
        ):
            return
        if self.tasks.standby and (self._updating is None or not self._updating.is_alive()):
            self._updating = threading.Thread(target=self.update_standby_tasks, name="flinkish-standby", daemon=True)
            self._updating.start()

    # ------------------------------------------------------------------ sources

    def run_source(
        self, vertex: int, subtask: int, given: SourceShare | SourceInput, stamp: EpochStamp, *, drain: bool = False
    ) -> Iterator[list[Row]]:
        """Run a source's subtask in an epoch, over a planned share or over what Spark has read. ``drain`` announces the
        end of the whole source, even if this subtask has ended before."""
        descriptor = self.job.vertex(vertex)
        subtask %= descriptor.parallelism
        task: SourceTask | None = None
        try:
            task = self._take_source(descriptor, subtask, stamp, drain)
            with self._output.of_run(stamp.epoch) as output, watched(self._progress, task, stamp):
                for rows in task.run(task.read(given) if isinstance(given, SourceShare) else given, stamp):
                    yield output.referenced(rows)
        except failures_of_user_code() as error:
            if isinstance(error, GeneratorExit) and error.__traceback__ and error.__traceback__.tb_next is None:
                # raised by the `yield` here: Spark wants no more rows
                self._drop_source(task)
                raise
            failure = self._described(error, descriptor.task_name(subtask), stamp.epoch, source=task)
            self._drop_source(task)
            raise failure from failure.__cause__
        passed(Phase.SOURCES_READ, vertex=vertex, subtask=subtask, epoch=stamp.epoch)

    def _take_source(
        self, descriptor: VertexDescriptor, subtask: int, stamp: EpochStamp, drain: bool = False
    ) -> SourceTask:
        """The task that this worker holds; a new one if there is none, if the held one has closed in an epoch that is
        run again, or if it has closed and the source is drained."""
        task = self._sources.get((descriptor.id, subtask))
        if task is None or task.closed_in is not None and (drain or task.closed_in >= stamp.epoch):
            task = SourceTask(self.job, descriptor, subtask, self._listener, self.trace)
            self._sources[descriptor.id, subtask] = task
        return task

    def _drop_source(self, task: SourceTask | None) -> None:
        if task is not None:
            self._sources.pop((task.vertex.id, task.subtask), None)
            _dispose_quietly(task)

    def dispose(self) -> None:
        """Close all tasks and release their resources, because the attempt is over."""
        for task_id in [*self.tasks.active, *self.tasks.standby]:
            self.tasks.close_dirty(task_id)
        for task in self._sources.values():
            _dispose_quietly(task)
        self._sources.clear()
        if self.when_disposed is not None:
            self.when_disposed()


def _dispose_quietly(task: Task) -> None:
    """Dispose of a task and only log errors: the first error matters, or nobody waits for the task any more."""
    try:
        task.discard()
        task.dispose()
    except failures_of_user_code() as error:
        _LOG.warning("%s could not be closed: %s: %s", task.name, type(error).__name__, message_of(error))


_managers: dict[tuple[str, str], TaskManager] = {}


def task_manager(
    job_id: str,
    version: str,
    load: Callable[[], JobDescriptor],
    files: EpochFiles | None = None,
    copies_of: Callable[[JobDescriptor], str | None] = lambda job: None,
) -> TaskManager:
    """The task manager of this worker for one version (attempt and program) of a job, created with ``load`` if needed.
    Task managers of other versions of the job are disposed of, since a new attempt opens its functions anew; so is that
    of the least recently used job if there are too many. ``copies_of`` gives this executor's folder for copies of state
    files, or None."""
    key = (job_id, version)
    manager = _managers.pop(key, None)
    if manager is None:
        for other in [other for other in _managers if other[0] == job_id]:
            _managers.pop(other).dispose()
        while len(_managers) >= MAX_JOBS:
            _managers.pop(next(iter(_managers))).dispose()
        job = load()
        manager = TaskManager(job, files, copies_of(job))
    _managers[key] = manager
    return manager


def dispose_of(job_id: str, version: str) -> None:
    """Dispose of the task manager of this version of a job, if this worker has one."""
    manager = _managers.pop((job_id, version), None)
    if manager is not None:
        manager.dispose()
