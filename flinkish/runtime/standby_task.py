"""Copies of the files of a subtask that runs elsewhere (Kafka Streams' StandbyTask): should it come to this executor,
there is nothing to fetch.

What the subtask's state refers to is known to its own task alone, so a standby copies whatever lies in the directory of
its files: the state, and what the epochs that can be gone back to need besides. Copies are checked when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkish.runtime.state.files.retention import epoch_of
from flinkish.runtime.task import TaskId
from flinkish.runtime.task_state import TaskLife, TaskState

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory


class StandbyTask(TaskLife):
    """See the module. ``name``: of the task."""

    def __init__(self, task_id: TaskId, name: str, directory: StateDirectory) -> None:
        self.task_id = task_id
        self.name = name
        self.directory = directory

    def update(self, max_bytes: int) -> int:
        """Copy files that are not here yet, until there are about so many bytes, and delete copies of files that are
        gone. Says how many bytes were copied; RUNNING when nothing is left to copy."""
        if self.task_state is TaskState.CREATED:
            self._to(TaskState.RESTORING)
        names = {name for name in self.directory.names() if epoch_of(name) is not None}
        here = self.directory.copies()
        self.directory.release(here - names)
        copied = 0
        missing = sorted(names - here)
        while missing and copied < max_bytes:
            copied += self.directory.fetch_ahead(missing.pop(0))
        if not missing and self.task_state is TaskState.RESTORING:
            self._to(TaskState.RUNNING)
        return copied

    def close_clean(self) -> None:
        """The copies are not needed any more."""
        self.suspend()
        self._to(TaskState.CLOSED)
        self.directory.release(self.directory.copies())

    def close_dirty(self) -> None:
        """Whatever the copies are: those that are needed will be checked."""
        if self.task_state is not TaskState.CLOSED:
            self._to(TaskState.CLOSED)

    def recycle(self) -> StateDirectory:
        """The subtask comes here: what was copied stays, for its task."""
        self.suspend()
        self._to(TaskState.CLOSED)
        return self.directory
