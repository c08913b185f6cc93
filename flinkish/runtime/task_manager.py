"""The worker's bookkeeping: which tasks it holds, at which version, and the way of a task through an epoch.

One per job and worker process; the only door between Spark's function and the runtime. The names of its methods are
those of Kafka Streams' class, because the work is the same.

The rule it upholds: a task's memory is trusted only if the stored state says it is at the very version (token) that
this worker wrote last. A task that failed, or that ran elsewhere in between, is closed dirty and made anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.errors import CorruptStateError, InternalError
from flinkish.runtime.buffer import Buffer
from flinkish.runtime.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.epoch_files import EpochFiles, TaskOutput, state_directory
from flinkish.runtime.failure import describe_failure
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.source_task import SourceInput, SourceTask
from flinkish.runtime.sources.progress import SourceShare
from flinkish.runtime.state.managed_memory import ManagedMemory
from flinkish.runtime.task import EpochStamp, Row, StatefulTask, Task, TaskResult
from flinkish.runtime.task_header import TaskHeader

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory

#: Tasks held at once; the one used longest ago makes room, closed clean.
MAX_TASKS = 256

#: Jobs whose tasks one worker holds at once.
MAX_JOBS = 16

#: Records between two looks at processing time.
PROCESS_STEP_RECORDS = 1_000_000

_TaskId = tuple[int, int]


class StoredTask(NamedTuple):
    """What the state store has of a subtask: encoded header (None: never run) and a way to get the body."""

    header: bytes | None
    load_body: Callable[[], bytes | None]


class TaskManager:
    """The tasks of one job in one worker."""

    def __init__(self, job: JobDescriptor, files: EpochFiles | None = None, keyed_state: str = "") -> None:
        """``files``: where tasks leave what an epoch gives to sinks; None: all of it stays in their rows.
        ``keyed_state``: directory of the files of keyed state; "": all of it stays with the tasks."""
        self.job = job
        self._keyed_state = keyed_state
        self._memory = ManagedMemory(job.settings.managed_memory_bytes)
        self._output = TaskOutput(job, files)
        #: while tasks are being moved, nothing commits
        self.rebalance_in_progress = False
        self._tasks: OrderedDict[_TaskId, StatefulTask] = OrderedDict()
        self._sources: dict[_TaskId, SourceTask] = {}
        self._current: StatefulTask | None = None

    # ------------------------------------------------------------------ one task, one epoch

    def run_task(
        self, vertex: int, subtask: int, stored: StoredTask, buffers: Iterable[Buffer], stamp: EpochStamp
    ) -> tuple[TaskResult | None, list[Row]]:
        """The whole way of a task through an epoch. None: it has ended before, nothing to write."""
        descriptor = self.job.vertex(vertex)
        header = self._header(vertex, subtask, stored.header)
        if header.finished:
            self._check_empty(header, buffers)
            return None, []
        task_name = descriptor.task_name(subtask)
        try:
            self.handle_assignment(vertex, subtask, header, stored.load_body, stamp)
            self.add_records_to_tasks(buffers)
            if self.needs_initialization_or_restoration():
                self.try_to_complete_restoration()
            self.punctuate()
            while self.process(PROCESS_STEP_RECORDS):
                self.punctuate()
            self.punctuate()
            passed(Phase.LEVEL_PROCESSED, vertex=vertex, subtask=subtask, level=descriptor.level, epoch=stamp.epoch)
            result, rows = self.commit()
            with self._output.of_run(stamp.epoch) as output:
                return result, output.referenced(rows)
        except Exception as error:
            if isinstance(error, CorruptStateError):
                self.handle_corruption(vertex, subtask)
            else:
                self.close_dirty(vertex, subtask)
            failure = describe_failure(error, task_name, stamp.epoch)
            raise failure from failure.__cause__

    def _check_empty(self, header: TaskHeader, buffers: Iterable[Buffer]) -> None:
        records = sum(buffer.header.records for buffer in buffers)
        if records:
            raise InternalError(
                f"{records} records came after the end of all input",
                where=f"job '{self.job.name}', operator uid {header.uid}, subtask {header.subtask}",
                expected="no record",
                hint="please report this",
            )

    def _header(self, vertex: int, subtask: int, data: bytes | None) -> TaskHeader:
        descriptor = self.job.vertex(vertex)
        if data is None:
            watermark_ms = self.job.restored_watermarks.get(vertex, MIN_TIMESTAMP_MS)
            return TaskHeader(descriptor.head.uid, vertex, subtask, watermark_ms=watermark_ms)
        return TaskHeader.decode(
            data,
            f"job '{self.job.name}', vertex '{descriptor.name}', subtask {subtask}",
            self.job.classes,
        )

    def handle_assignment(
        self,
        vertex: int,
        subtask: int,
        header: TaskHeader,
        load_body: Callable[[], bytes | None],
        stamp: EpochStamp,
    ) -> None:
        """Spark brought a subtask to this worker."""
        task = self._tasks.get((vertex, subtask))
        if task is not None and task.token != header.token:
            self.close_dirty(vertex, subtask)
            task = None
        if task is None:
            self._make_room()
            directory = self._state_directory(vertex, subtask)
            task = StatefulTask(self.job, self.job.vertex(vertex), subtask, directory, self._memory)
            self._tasks[(vertex, subtask)] = task
        self._tasks.move_to_end((vertex, subtask))
        task.assign(header, load_body, stamp)
        self._current = task

    def _state_directory(self, vertex: int, subtask: int) -> StateDirectory | None:
        """Where the files of a subtask's state lie; None: all of it stays with the task."""
        if not self._keyed_state:
            return None
        from flinkish.runtime.state.files.directory import StateDirectory

        return StateDirectory(state_directory(self._keyed_state, vertex, subtask))

    def _make_room(self) -> None:
        while len(self._tasks) >= MAX_TASKS:
            _, task = self._tasks.popitem(last=False)
            task.close()

    def needs_initialization_or_restoration(self) -> bool:
        """Always True: a task's state is made current in each epoch; decoding it is lazy."""
        return self._current is not None

    def try_to_complete_restoration(self) -> None:
        """Make the task's state current."""
        self._task.restore()

    def add_records_to_tasks(self, buffers: Iterable[Buffer]) -> None:
        """The epoch's buffers of the task."""
        self._task.add_records(buffers)

    def process(self, max_num_records: int) -> bool:
        """Consume about that many records in time order; False when the epoch's input is consumed."""
        return self._task.process(max_num_records)

    def punctuate(self) -> None:
        """Processing-time timers. Event-time timers fire inside `process`, at their place between the records."""
        self._task.punctuate_processing_time()

    def commit(self) -> tuple[TaskResult, list[Row]]:
        """The barrier for the task."""
        if self.rebalance_in_progress:
            raise InternalError("a commit during a rebalance", hint="please report this")
        task = self._task
        share = task.share
        result = task.prepare_commit()
        task.post_commit(result)
        self._current = None
        passed(Phase.STATE_WRITTEN, vertex=task.vertex.id, subtask=task.subtask, epoch=share.stamp.epoch)
        return result, task.take_rows()

    def handle_corruption(self, vertex: int, subtask: int) -> None:
        """State that cannot be decoded: nothing that this worker holds of the subtask is trusted any more. The error
        makes the driver go back to the last checkpoint (``jobmanager/recovery``)."""
        self.close_dirty(vertex, subtask)

    def close_dirty(self, vertex: int, subtask: int) -> None:
        """Throw the task away with all it holds in memory; the stored state is the truth."""
        task = self._tasks.pop((vertex, subtask), None)
        self._current = None
        if task is not None:
            task.discard()
            _dispose_quietly(task)

    @property
    def _task(self) -> StatefulTask:
        if self._current is None:
            raise InternalError("no task has been assigned", hint="please report this")
        return self._current

    # ------------------------------------------------------------------ sources

    def run_source(
        self, vertex: int, subtask: int, given: SourceShare | SourceInput, stamp: EpochStamp, *, drain: bool = False
    ) -> Iterator[list[Row]]:
        """What a source's subtask does in an epoch: a share that was planned, or what Spark has read. ``drain``: the
        end of the whole source is announced, also if this subtask has ended before."""
        descriptor = self.job.vertex(vertex)
        subtask %= descriptor.parallelism
        task = self._take_source(descriptor, subtask, stamp, drain)
        try:
            with self._output.of_run(stamp.epoch) as output:
                for rows in task.run(task.read(given) if isinstance(given, SourceShare) else given, stamp):
                    yield output.referenced(rows)
        except GeneratorExit:
            _dispose_quietly(task)
            raise
        except Exception as error:
            task.discard()
            _dispose_quietly(task)
            failure = describe_failure(error, descriptor.task_name(subtask), stamp.epoch)
            raise failure from failure.__cause__
        self._sources[(vertex, subtask)] = task
        passed(Phase.SOURCES_READ, vertex=vertex, subtask=subtask, epoch=stamp.epoch)

    def _take_source(
        self, descriptor: VertexDescriptor, subtask: int, stamp: EpochStamp, drain: bool = False
    ) -> SourceTask:
        """The task that this worker holds; a new one when that has closed in this very epoch, which is run again."""
        task = self._sources.pop((descriptor.id, subtask), None)
        if task is None or task.closed_in is not None and (drain or task.closed_in >= stamp.epoch):
            return SourceTask(self.job, descriptor, subtask)
        return task

    def dispose(self) -> None:
        """Give everything back: the attempt is over."""
        self._current = None
        for task in [*self._tasks.values(), *self._sources.values()]:
            _dispose_quietly(task)
        self._tasks.clear()
        self._sources.clear()


def _dispose_quietly(task: Task) -> None:
    """The first error is the one that counts; what closing says after it is of no help."""
    try:
        task.dispose()
    except Exception:  # noqa: S110
        pass


_managers: dict[tuple[str, str], TaskManager] = {}


def task_manager(
    job_id: str, version: str, load: Callable[[], JobDescriptor], files: EpochFiles | None = None
) -> TaskManager:
    """The task manager of this worker for one version (attempt and program) of a job. Those of other versions are
    disposed of: a new attempt opens its functions anew. So is that of the job used longest ago, when there are too
    many."""
    key = (job_id, version)
    manager = _managers.pop(key, None)
    if manager is None:
        for other in [other for other in _managers if other[0] == job_id]:
            _managers.pop(other).dispose()
        while len(_managers) >= MAX_JOBS:
            _managers.pop(next(iter(_managers))).dispose()
        manager = TaskManager(load(), files, "" if files is None else files.state)
    _managers[key] = manager
    return manager
