"""Standby tasks (Kafka Streams' StandbyTask): they copy the state files of a subtask that runs elsewhere, so that there
is nothing to fetch if the subtask moves to this executor.

Only the subtask's own task knows which files its state refers to, so a standby task copies all files in the subtask's
directory: those of the present state and those of earlier epochs that the job may go back to. Copies are checked when
they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkish.runtime.state.files.retention import epoch_of
from flinkish.runtime.task import TaskId
from flinkish.runtime.task_state import TaskLife, TaskState

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory


class StandbyTask(TaskLife):
    """Keeps copies of the state files of one subtask on this executor's disk. ``name`` is the name of the task."""

    def __init__(self, task_id: TaskId, name: str, directory: StateDirectory) -> None:
        self.task_id = task_id
        self.name = name
        self.directory = directory

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
        if not missing and self.task_state is TaskState.RESTORING:
            self._to(TaskState.RUNNING)
        return copied

    def close_clean(self) -> None:
        """Close the task and delete its copies, because they are not needed any more."""
        self.suspend()
        self._to(TaskState.CLOSED)
        self.directory.release(self.directory.copies())

    def close_dirty(self) -> None:
        """Close the task and leave the copies as they are, since every copy is checked when it is used."""
        if self.task_state is not TaskState.CLOSED:
            self._to(TaskState.CLOSED)

    def recycle(self) -> StateDirectory:
        """Close the task but keep its copies, for the active task of the subtask; returns their directory."""
        self.suspend()
        self._to(TaskState.CLOSED)
        return self.directory
