"""The task manager: it holds the tasks of a job in a worker, with the versions of their state, and runs them.

There is one per job and worker process, and it is the only entry from Spark's function into the runtime. Its methods
have the names of those of Kafka Streams' TaskManager, because they do the same work.

Rule: a task's memory is trusted only if the stored state has the very version (token) that this worker has written
last. A task that has failed, or that ran elsewhere in between, is closed dirty and created anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import CorruptStateError, FlinkishError, InternalError, failures_of_user_code
from flinkish.runtime.epoch.files import EpochFiles, TaskOutput
from flinkish.runtime.exchange.buffer import Buffer
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.job.failure import describe_failure
from flinkish.runtime.job.operator import OperatorListener
from flinkish.runtime.job.report import Row, TaskHeader
from flinkish.runtime.phases import Clock, Phase, SystemClock, passed
from flinkish.runtime.sources.progress import SourceShare
from flinkish.runtime.task.progress import ProgressReporter, reporter_to_files, watched
from flinkish.runtime.task.source_task import SourceInput, SourceTask
from flinkish.runtime.task.stateful_task import StatefulTask
from flinkish.runtime.task.task import CLEAN_UP_EPOCHS, EpochStamp, Task, TaskId, TaskResult, TaskState
from flinkish.runtime.task.tasks import Tasks

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory

#: Maximum number of tasks that are held at once; the least recently used one is closed clean to make room.
MAX_TASKS = 256

#: Maximum number of jobs whose tasks one worker holds at once.
MAX_JOBS = 16

#: Number of records between two checks for due processing-time timers.
PROCESS_STEP_RECORDS = 1_000_000

_REPORT = "please report this"

#: Approximate number of bytes that a step of restoration fetches, and that standby tasks copy at a time.
RESTORE_STEP_BYTES = 64 * 1024 * 1024

#: Seconds between two tries of a task that waits for storage.
RETRY_S = 1.0

_LOG = logging.getLogger("flinkish.TaskManager")


class StoredTask(NamedTuple):
    """The stored state of a subtask: its encoded header (None if it has never run) and a way to load the body."""

    header: bytes | None
    load_body: Callable[[], bytes | None]


class Committed(NamedTuple):
    """The result and the rows that a task has handed over at the barrier."""

    result: TaskResult
    rows: list[Row]


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
        self.tasks = Tasks(job, keyed_state or ("" if files is None else files.state), copies, listener, read_only)
        self._output = TaskOutput(job, files)
        #: whether tasks are being moved; nothing commits meanwhile
        self.rebalance_in_progress = False
        self._updating: threading.Thread | None = None
        #: what `commit` has made, until `run_task` returns it
        self.committed: dict[TaskId, Committed] = {}
        self._sources: dict[TaskId, SourceTask] = {}
        self._progress = progress or (None if files is None else reporter_to_files(job, files.query))
        #: the epoch of the Spark task that has begun last, and all tasks that were placed here in that epoch
        self._epoch, self._here = -1, set[TaskId]()

    # ------------------------------------------------------------------ one task, one epoch

    def run_task(
        self, vertex: int, subtask: int, stored: StoredTask, buffers: Iterable[Buffer], stamp: EpochStamp
    ) -> tuple[TaskResult | None, list[Row]]:
        """Run one task through an epoch. The result is None if the task has ended before and nothing is written."""
        task_id, descriptor = (vertex, subtask), self.job.vertex(vertex)
        header = self.header_of(vertex, subtask, stored.header)
        if header.finished:
            self._check_empty(header, buffers)
            return None, []
        try:
            self.assign_epoch(task_id, header, stored.load_body, stamp)
            self.add_records_to_tasks({task_id: buffers})
            self._complete_restoration(task_id)
            with watched(self._progress, self.tasks.active[task_id], stamp):
                self.tasks.active[task_id].begin()
                self.punctuate()
                while self.process(PROCESS_STEP_RECORDS, stamp.time_ms):
                    self.punctuate()
                self.punctuate()
                passed(Phase.LEVEL_PROCESSED, vertex=vertex, subtask=subtask, level=descriptor.level, epoch=stamp.epoch)
                asked = self.maybe_commit_active_tasks_per_user_requested()
                if asked < 1 and self.commit([self.tasks.active[task_id]]) < 1:
                    raise InternalError(f"task '{descriptor.task_name(subtask)}' has not committed", hint=_REPORT)
                return self.committed.pop(task_id)
        except failures_of_user_code() as error:
            if isinstance(error, CorruptStateError):
                self.handle_corruption({task_id})
            self.tasks.close_dirty(task_id)
            failure = self._described(error, descriptor.task_name(subtask), stamp.epoch)
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

    def header_of(self, vertex: int, subtask: int, data: bytes | None) -> TaskHeader:
        """What the stored state of a task says of it; ``data`` is None for a task that begins."""
        descriptor = self.job.vertex(vertex)
        if data is None:
            watermark_ms = self.job.restored_watermarks.get(vertex, MIN_TIMESTAMP_MS)
            return TaskHeader(descriptor.head.uid, vertex, subtask, watermark_ms=watermark_ms)
        return TaskHeader.decode(
            data,
            f"job '{self.job.name}', vertex '{descriptor.name}', subtask {subtask}",
            self.job.classes,
        )

    def assign_epoch(
        self, task_id: TaskId, header: TaskHeader, load_body: Callable[[], bytes | None], stamp: EpochStamp
    ) -> None:
        """Assign an epoch to a task whose stored state Spark has loaded. If this worker does not hold the task at that
        very version, the task was moved here."""
        task = self.tasks.active.get(task_id)
        if task is not None and task.token is not None and task.token != header.token:
            _LOG.info("%s ran elsewhere in between", task.name)
            self.handle_rebalance_start()
            self.tasks.close_dirty(task_id)
            task = None
        if task is None:
            self.handle_rebalance_start()
            self.handle_assignment({*self.tasks.active, task_id}, self.tasks.standby.keys() - {task_id})
        self.tasks.active.move_to_end(task_id)
        self.tasks.active[task_id].assign(header, load_body, stamp)

    # ------------------------------------------------------------------ which tasks

    def place(self, tasks: Set[TaskId], standby: Set[TaskId], epoch: int) -> None:
        """Handle the begin of a Spark task in this worker. A rebalance begins if some of its tasks are not here.

        Args:
            tasks: all tasks that run in the Spark task.
            standby: the tasks whose files are to be copied here, in case they move here.
            epoch: number of the running epoch.
        """
        standby = {task_id for task_id in standby if self.tasks.has_copies(task_id)}
        if epoch != self._epoch:
            self._epoch, self._here = epoch, set()
        self._here |= tasks
        if tasks <= self.tasks.active.keys() and standby <= self.tasks.standby.keys() | self.tasks.active.keys():
            return
        self.handle_rebalance_start()
        levels = {self.job.vertex(vertex).level for vertex, _ in tasks}
        others = {
            task_id for task_id in self.tasks.active.keys() - self._here if self.job.vertex(task_id[0]).level in levels
        }
        self.handle_revocation(others)
        self.handle_assignment({*self.tasks.active, *tasks}, (self.tasks.standby.keys() | standby) - tasks)

    def handle_assignment(self, active: Set[TaskId], standby: Set[TaskId] = frozenset()) -> None:
        """Make these, and no others, the tasks of this worker. A standby task that becomes active keeps the copies of
        its files, and vice versa. All other tasks are closed; one that cannot be closed does not prevent the rest from
        being handled, and the first error is raised at the end."""
        standby = standby - active
        active = self._with_room(active)
        held = self.tasks.active.keys() | self.tasks.standby.keys()
        _LOG.debug(
            "Handle new assignment with:\n"
            "\tNew active tasks: %s\n\tNew standby tasks: %s\n"
            "\tExisting active tasks: %s\n\tExisting standby tasks: %s",
            *map(
                self.tasks.names,
                (active - held, standby - held, active & self.tasks.active.keys(), standby & self.tasks.standby.keys()),
            ),
        )
        directories: dict[TaskId, StateDirectory | None] = {}
        first: BaseException | None = None
        for task_id in [*self.tasks.active, *self.tasks.standby]:
            if task_id in (active if task_id in self.tasks.active else standby):
                continue
            try:
                if task_id in active | standby:
                    directories[task_id] = self.tasks.recycle(task_id)
                else:
                    self.tasks.close_clean(task_id)
            except failures_of_user_code() as error:
                first = first or error
                self.tasks.close_dirty(task_id)
        for task_id in sorted(active - self.tasks.active.keys()):
            self.tasks.create(task_id, directories.get(task_id))
        for task_id in sorted(standby - self.tasks.standby.keys()):
            self.tasks.create_standby(task_id, directories.get(task_id))
        if first is not None:
            raise first

    def _with_room(self, active: Set[TaskId]) -> Set[TaskId]:
        """Drop the least recently used tasks without work from ``active``, as many as exceed `MAX_TASKS`."""
        excess = len(active) - MAX_TASKS
        idle = [
            task_id for task_id, task in self.tasks.active.items() if task_id not in self._here and not task.has_share
        ]
        return active - set(idle[: max(excess, 0)])

    def handle_rebalance_start(self) -> None:
        """Begin a rebalance, in which tasks are moved: nothing commits until they are restored."""
        self.rebalance_in_progress = True

    def handle_rebalance_complete(self) -> None:
        """End the rebalance, because all tasks that were moved here and whose stored state was loaded are restored."""
        self.rebalance_in_progress = False

    def handle_revocation(self, revoked: Set[TaskId]) -> None:
        """Suspend these tasks, which will probably continue elsewhere. A task that comes back and has not run meanwhile
        continues with its state in memory. Tasks at work are not interrupted."""
        for task_id in sorted(revoked & self.tasks.active.keys()):
            task = self.tasks.active[task_id]
            if not task.has_share:
                task.suspend()
                self.tasks.active.move_to_end(task_id, last=False)

    def handle_lost_all(self) -> None:
        """Close all tasks dirty, because they may belong to another worker already: no work in progress counts."""
        for task_id in [*self.tasks.active, *self.tasks.standby]:
            self.tasks.close_dirty(task_id)
        self.handle_rebalance_complete()

    # ------------------------------------------------------------------ restoration

    def needs_initialization_or_restoration(self) -> bool:
        """Whether a task has something to restore: stored state that is not in memory, or files of its state that are
        not known to be on the executor's disk."""
        return any(task.needs_restoration for task in self.tasks.active.values())

    def try_to_complete_restoration(self, now_ms: int) -> bool:
        """Take a bounded step for each task that is to be restored; returns whether all tasks are restored then. A task
        whose storage cannot be reached waits, up to its timeout."""
        for task in [task for task in self.tasks.active.values() if task.needs_restoration]:
            try:
                task.initialize_if_needed()
                task.restore(RESTORE_STEP_BYTES)
            except FlinkishError as error:
                if isinstance(error, CorruptStateError) or not error.retryable:
                    raise
                task.maybe_init_task_timeout_or_throw(now_ms, error)
            else:
                task.clear_task_timeout()
        return not self.needs_initialization_or_restoration()

    def _complete_restoration(self, task_id: TaskId) -> None:
        """Restore all tasks that are to be restored. After a CorruptStateError it is tried once more, from the files
        themselves instead of their copies."""
        if self.needs_initialization_or_restoration():
            self.handle_rebalance_start()
            try:
                self._restore_all()
            except CorruptStateError as error:
                _LOG.warning("%s cannot be restored: %s", self.tasks.name(task_id), error.what)
                self.handle_corruption({task_id})
                self._restore_all()
        if self.rebalance_in_progress:
            self.handle_rebalance_complete()

    def _restore_all(self) -> None:
        while not self.try_to_complete_restoration(self._clock.now_ms()):
            if any(task.is_waiting for task in self.tasks.active.values()):
                time.sleep(RETRY_S)

    def update_standby_tasks(self, max_bytes: int = RESTORE_STEP_BYTES) -> int:
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

    # ------------------------------------------------------------------ work

    def add_records_to_tasks(self, records: Mapping[TaskId, Iterable[Buffer]]) -> None:
        """Give each task its buffers of the epoch."""
        for task_id, buffers in records.items():
            if task_id not in self.tasks.active:
                raise InternalError(
                    f"records came for {self.tasks.name(task_id)}, which is no task of this worker", hint=_REPORT
                )
            self.tasks.active[task_id].add_records(buffers)

    def process(self, max_num_records: int, time_ms: int) -> int:
        """Consume about ``max_num_records`` records of each task at work, in time order. Returns how many were
        consumed; 0 means that no input is left. ``time_ms``, the epoch's time, is only logged; errors name the task."""
        processed = 0
        for task in self._at_work():
            before = task.records_in
            with self._named(task):
                task.process(max_num_records)
            processed += task.records_in - before
        _LOG.debug("processed %d records at %d", processed, time_ms)
        return processed

    def punctuate(self) -> int:
        """Fire the processing-time timers that are due; event-time timers fire inside `process`, at their place between
        the records. Returns how many timers of both kinds have fired since the last call."""
        fired = 0
        for task in self._at_work():
            with self._named(task):
                fired += task.maybe_punctuate()
        return fired

    def _at_work(self) -> list[StatefulTask]:
        return [task for task in self.tasks.active.values() if task.has_work]

    @contextmanager
    def _named(self, task: StatefulTask) -> Iterator[None]:
        """Make errors inside the block name the task."""
        try:
            yield
        except failures_of_user_code() as error:
            failure = self._described(error, task.name, task.share.stamp.epoch)
            raise failure from failure.__cause__

    # ------------------------------------------------------------------ the barrier

    def commit(self, tasks: Iterable[StatefulTask]) -> int:
        """Handle the barrier of those tasks that have consumed the input of their epoch. Returns how many these were,
        or -1 if a rebalance is in progress and nothing was committed."""
        if self.rebalance_in_progress:
            return -1
        prepared = [(task, task.share, task.prepare_commit()) for task in tasks if task.commit_needed]
        for task, share, result in prepared:
            with self._output.of_run(share.stamp.epoch) as output:
                rows = output.referenced(task.take_rows())
            self.committed[task.task_id] = Committed(result, rows)
            task.clear_task_timeout()
            task.post_commit(result)
            if result.header.finished:
                del self.tasks.active[task.task_id]
            passed(Phase.STATE_WRITTEN, vertex=task.vertex.id, subtask=task.subtask, epoch=share.stamp.epoch)
        return len(prepared)

    def maybe_commit_active_tasks_per_user_requested(self) -> int:
        """Handle the barrier of the tasks whose user code has asked for it, as `commit` does. The report of such a task
        makes the driver plan the next epoch at once."""
        return self.commit([task for task in self.tasks.active.values() if task.commit_requested])

    def handle_corruption(self, corrupted: Set[TaskId]) -> None:
        """Revive tasks whose stored state cannot be read, after healthy tasks have committed. All that this worker and
        its executor's disk hold of the corrupted tasks is discarded, so they are restored from the files themselves.

        If the files are damaged as well, restoration raises CorruptStateError, which names the file, and the driver
        goes back to the last checkpoint (``checkpoint/fallback.py``)."""
        self.commit([task for task_id, task in self.tasks.active.items() if task_id not in corrupted])
        for task_id in sorted(corrupted & self.tasks.active.keys()):
            task = self.tasks.active[task_id]
            _LOG.warning("%s is corrupted: it is closed and revived", task.name)
            self.tasks.close_dirty(task_id)
            if task.directory is not None:
                with suppress(FlinkishError):
                    task.directory.wipe()
            self.tasks.create(task_id, task.directory).take_over(task)

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
                _dispose_quietly(task)
                raise
            failure = self._described(error, descriptor.task_name(subtask), stamp.epoch, source=task)
            _dispose_quietly(task)
            raise failure from failure.__cause__
        self._sources[(vertex, subtask)] = task
        passed(Phase.SOURCES_READ, vertex=vertex, subtask=subtask, epoch=stamp.epoch)

    def _take_source(
        self, descriptor: VertexDescriptor, subtask: int, stamp: EpochStamp, drain: bool = False
    ) -> SourceTask:
        """The task that this worker holds; a new one if there is none, if the held one has closed in an epoch that is
        run again, or if it has closed and the source is drained."""
        task = self._sources.pop((descriptor.id, subtask), None)
        if task is None or task.closed_in is not None and (drain or task.closed_in >= stamp.epoch):
            return SourceTask(self.job, descriptor, subtask, self._listener)
        return task

    def dispose(self) -> None:
        """Close all tasks and release their resources, because the attempt is over."""
        self.handle_lost_all()
        for task in self._sources.values():
            _dispose_quietly(task)
        self._sources.clear()


def _dispose_quietly(task: Task | None) -> None:
    """Dispose of a task and ignore errors: only the first error matters, and later ones are of no help."""
    with suppress(*failures_of_user_code()):
        if task is not None:
            task.discard()
            task.dispose()


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
