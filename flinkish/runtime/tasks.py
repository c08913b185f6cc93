"""The tasks that a worker holds (Kafka Streams' Tasks): making them, ending them, and where their files are."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_files import state_directory
from flinkish.runtime.operator_listener import OperatorListener
from flinkish.runtime.standby_task import StandbyTask
from flinkish.runtime.state.managed_memory import ManagedMemory
from flinkish.runtime.stateful_task import StatefulTask
from flinkish.runtime.task import TaskId

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory

_LOG = logging.getLogger("flinkish.TaskManager")


class Tasks:
    """See the module.

    Args:
        job: whose tasks.
        state: directory of the files of state; "": all state stays with the tasks.
        copies: folder on the executor's disk for copies of these files; None: they are read where they lie.
    """

    def __init__(
        self,
        job: JobDescriptor,
        state: str,
        copies: str | None,
        listener: OperatorListener | None = None,
        read_only: bool = False,
    ) -> None:
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
        """As Flink shows it."""
        return self._job.vertex(task_id[0]).task_name(task_id[1])

    def names(self, tasks: Iterable[TaskId]) -> str:
        """Of several ones, in order."""
        return f"[{', '.join(map(self.name, sorted(tasks)))}]"

    def has_copies(self, task_id: TaskId) -> bool:
        """Whether the files of a task's state are copied to the executor's disk."""
        return bool(self._state) and self._copies is not None and self._job.vertex(task_id[0]).stateful

    def create(self, task_id: TaskId, directory: StateDirectory | None = None) -> StatefulTask:
        """A new active task. ``directory``: of the task that it takes the place of."""
        directory = directory or self._directory(task_id)
        vertex, subtask = self._job.vertex(task_id[0]), task_id[1]
        task = StatefulTask(self._job, vertex, subtask, directory, self._memory, self._listener)
        self.active[task_id] = task
        return task

    def create_standby(self, task_id: TaskId, directory: StateDirectory | None = None) -> None:
        """A new standby task, if there is anything to copy."""
        if self.has_copies(task_id):
            found = directory or self._directory(task_id)
            assert found is not None
            self.standby[task_id] = StandbyTask(task_id, self.name(task_id), found)

    def recycle(self, task_id: TaskId) -> StateDirectory | None:
        """End an active or a standby task, for one of the other kind; what is on the disk stays."""
        standby = self.standby.pop(task_id, None)
        if standby is not None:
            return standby.recycle()
        task = self.active[task_id]
        task.close_clean()
        del self.active[task_id]
        return task.directory

    def close_clean(self, task_id: TaskId) -> None:
        """The normal end of a task."""
        standby = self.standby.pop(task_id, None)
        if standby is not None:
            standby.close_clean()
            return
        self.active[task_id].close_clean()
        del self.active[task_id]

    def close_dirty(self, task_id: TaskId) -> None:
        """Throw a task away with all it holds in memory; the stored state is the truth."""
        task = self.active.pop(task_id, None) or self.standby.pop(task_id, None)
        if task is not None:
            _LOG.debug("%s is closed dirty", task.name)
            task.close_dirty()

    def _directory(self, task_id: TaskId) -> StateDirectory | None:
        """Where the files of a task's state lie; None: all of it stays with the task."""
        if not self._state or not self._job.vertex(task_id[0]).stateful:
            return None
        from flinkish.runtime.state.files.directory import StateDirectory

        copies = None if self._copies is None else state_directory(self._copies, *task_id)
        return StateDirectory(state_directory(self._state, *task_id), copies, read_only=self._read_only)
