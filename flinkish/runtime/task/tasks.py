"""The tasks that a worker holds (Kafka Streams' Tasks): creates and closes them, and knows where their files are. Also
finds out, without any task, which states a program declares."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING

from flinkish.common.typeinfo import Types
from flinkish.errors import FlinkishError, failures_of_user_code, message_of
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.job.operator import OperatorListener
from flinkish.runtime.job.report import LifecycleCall
from flinkish.runtime.state.files.directory import state_directory
from flinkish.runtime.state.files.references import epoch_of
from flinkish.runtime.state.limits import ManagedMemory
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates
from flinkish.runtime.state.state_rows import LIST_STATE_KIND, UNION_STATE_KIND
from flinkish.runtime.task.stateful_task import StatefulTask
from flinkish.runtime.task.task import TaskId, TaskLife, TaskState

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory


def states_of_program(job: JobDescriptor) -> ProgramStates:
    """Collect the states that the operators of a job declare, by running their initialization in this process: the
    keyed operators are opened once on empty state and disposed of. Where it fails, the reason is recorded instead."""
    states: dict[str, dict[str, ProgramState]] = {}
    unknown: dict[str, str] = {}
    key_types = {vertex.head.uid: vertex.key_type for vertex in job.vertices if vertex.key_type is not None}
    for vertex in job.vertices:
        if vertex.stateful:
            try:
                states.update(_states_of(job, vertex))
            except failures_of_user_code() as error:
                what = error.what if isinstance(error, FlinkishError) else message_of(error)
                unknown[vertex.head.uid] = f"open() raised {type(error).__name__}: {what}"
    return ProgramStates(states, unknown, key_types)


def _states_of(job: JobDescriptor, vertex: VertexDescriptor) -> dict[str, dict[str, ProgramState]]:
    """The states of a vertex, as operator uid -> state name -> state. Only the head operator of a keyed vertex is
    opened."""
    task = StatefulTask(job, vertex, 0)
    try:
        found: dict[str, dict[str, ProgramState]] = {}
        for operator in reversed(task.chain.operators):
            operator.initialize_state()
        for uid, state in task.chain.states.items():
            for name, (kind, descriptor) in state.known().items():
                of_operator = found.setdefault(uid, {})
                map_key, value = descriptor.entry_types()
                place = Types.LONG() if kind in (LIST_STATE_KIND, UNION_STATE_KIND) else map_key
                of_operator[name] = ProgramState(kind, place, value)
        if task.keyed_state is not None:
            task.chain.head.open()
            of_head = found.setdefault(vertex.head.uid, {})
            for name, (kind, keyed) in task.keyed_state.declared.items():
                types = (None, None) if keyed is None else keyed.entry_types()
                of_head[name] = ProgramState(kind, *types)
        return found
    finally:
        task.dispose()


_LOG = logging.getLogger("flinkish.TaskManager")


class StandbyTask(TaskLife):
    """A standby task (Kafka Streams' StandbyTask): it copies the state files of a subtask that runs elsewhere to this
    executor's disk, so that there is nothing to fetch if the subtask moves here. ``name`` is the name of the task.

    Only the subtask's own task knows which files its state refers to, so a standby task copies all files in the
    subtask's directory: those of the present state and those of earlier epochs that the job may go back to. Copies are
    checked when they are used."""

    def __init__(self, task_id: TaskId, name: str, directory: StateDirectory) -> None:
        self.task_id = task_id
        self.name = name
        self.directory = directory
        #: number of the files that are copied
        self.copies = 0

    def update(self, max_bytes: int) -> int:
        """Copy about ``max_bytes`` of the files that are not here yet, and delete copies of files that are gone.
        Returns the number of bytes copied. The task is RUNNING once nothing is left to copy."""
        if self.task_state is TaskState.CREATED:
            self._to(TaskState.RESTORING)
        names = {name for name in self.directory.names() if epoch_of(name) is not None}
        self.directory.release_stale(names)
        copied = 0
        missing = sorted(names - self.directory.copies())
        while missing and copied < max_bytes:
            copied += self.directory.fetch_ahead(missing.pop(0))
        self.copies = len(names) - len(missing)
        if not missing and self.task_state is TaskState.RESTORING:
            self._to(TaskState.RUNNING)
        return copied

    def close_dirty(self) -> None:
        """Close the task and leave the copies as they are, since every copy is checked when it is used."""
        if self.task_state is not TaskState.CLOSED:
            self._to(TaskState.CLOSED)

    def recycle(self) -> StateDirectory:
        """Close the task but keep its copies, for the active task of the subtask; returns their directory."""
        self._to(TaskState.CLOSED)
        return self.directory


class Tasks:
    """The active and the standby tasks of one job in one worker process.

    Args:
        job: the job of the tasks.
        state: directory of the state files; "" if all state is stored with the tasks.
        copies: folder on the executor's disk for copies of these files; None if the files are read in place.
        listener: is called with all that each operator receives and emits.
        read_only: whether state files must be neither written nor deleted.
        trace: gets the calls of the lifecycle of the operators; None: they are not traced.
    """

    def __init__(
        self,
        job: JobDescriptor,
        state: str,
        copies: str | None,
        listener: OperatorListener | None = None,
        read_only: bool = False,
        trace: deque[LifecycleCall] | None = None,
    ) -> None:
        self._trace = trace
        self._job = job
        self._state = state
        self._copies = copies
        self._listener = listener
        self._read_only = read_only
        self._memory = ManagedMemory(job.settings.managed_memory_bytes)
        #: least recently used first
        self.active: OrderedDict[TaskId, StatefulTask] = OrderedDict()
        self.standby: dict[TaskId, StandbyTask] = {}

    def name(self, task_id: TaskId) -> str:
        """The name of a task as Flink shows it, such as ``Map -> Sink (1/2)``."""
        return self._job.vertex(task_id[0]).task_name(task_id[1])

    def has_copies(self, task_id: TaskId) -> bool:
        """Whether the state files of a task are copied to the executor's disk."""
        return bool(self._state) and self._copies is not None and self._job.vertex(task_id[0]).stateful

    def create(self, task_id: TaskId, directory: StateDirectory | None = None) -> StatefulTask:
        """Create an active task. ``directory`` is that of the task that it replaces, if any; a standby task leaves its
        own."""
        standby = self.standby.pop(task_id, None)
        directory = directory or (self._directory(task_id) if standby is None else standby.recycle())
        vertex, subtask = self._job.vertex(task_id[0]), task_id[1]
        task = StatefulTask(self._job, vertex, subtask, directory, self._memory, self._listener, self._trace)
        self.active[task_id] = task
        return task

    def create_standby(self, task_id: TaskId) -> None:
        """Create a standby task of a task that has state files to copy."""
        directory = self._directory(task_id)
        assert directory is not None
        self.standby[task_id] = StandbyTask(task_id, self.name(task_id), directory)

    def make_room(self, most: int, epoch: int) -> None:
        """Close the tasks that were used longest ago, as many as there are more than ``most``; not those that have run
        in this epoch. One that cannot be closed in order is closed dirty."""
        for task_id in list(self.active)[: max(len(self.active) - most, 0)]:
            task = self.active[task_id]
            if task.epoch >= epoch:
                return
            del self.active[task_id]
            try:
                task.close_clean()
            except failures_of_user_code() as error:
                _LOG.warning("%s could not be closed: %s", task.name, message_of(error))
                task.close_dirty()

    def close_dirty(self, task_id: TaskId, discard_copies: bool = False) -> None:
        """Close a task and discard all that it holds in memory; only the stored state is valid. ``discard_copies``:
        also what the executor's disk has of it."""
        task = self.active.pop(task_id, None) or self.standby.pop(task_id, None)
        if task is None:
            return
        _LOG.debug("%s is closed dirty", task.name)
        task.close_dirty()
        if discard_copies and task.directory is not None:
            with suppress(FlinkishError):
                task.directory.wipe()

    def _directory(self, task_id: TaskId) -> StateDirectory | None:
        """The directory of a task's state files; None if all of its state is stored with the task."""
        if not self._state or not self._job.vertex(task_id[0]).stateful:
            return None
        from flinkish.runtime.state.files.directory import StateDirectory

        copies = None if self._copies is None else state_directory(self._copies, *task_id)
        return StateDirectory(state_directory(self._state, *task_id), copies, read_only=self._read_only)
