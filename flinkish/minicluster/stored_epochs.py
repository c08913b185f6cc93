"""Keeps the stored state of a minicluster's job in files, so that a job whose process was killed goes on from there.

    <job dir>/minicluster/<epoch>.json            positions of the sources and stored tasks at the end of the epoch
    <job dir>/minicluster/committed.json          the last committed epoch, and totals of the accumulators
    <job dir>/minicluster/prepared/<epoch>.json   what the epoch gives to sinks (runtime/epoch/files.py)

A process that takes the job over moves that directory away, as it does with the directory of a query on Spark.

Rule: that of ``runtime/epoch/files.py``. The state of an epoch is written before the epoch is prepared, so a
prepared epoch has its state and is never run again. An epoch in which nothing has happened is not written: it runs
again, and nobody has seen it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flinkish.core.sink import Fence
from flinkish.errors import CorruptStateError
from flinkish.runtime.epoch.files import PreparedEpoch, PreparedEpochs, prepared_directory
from flinkish.runtime.sources.alignment import Reached
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import storage_errors, storage_of

_REMEDY = (
    "restore the file from a copy, or start the job in a new directory from its last checkpoint (-s "
    "JOB_DIR/checkpoints/chk-<number>) or savepoint"
)

#: (vertex, subtask) -> encoded header and body
StoredTasks = dict[tuple[int, int], tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class StoredEpoch(StoredFile):
    """The end of an epoch: the positions of the sources, what their tasks have reached, and all stored tasks."""

    NAME = "{}.json"
    FOLDER = "minicluster"
    WHEN = "in the minicluster"
    READER = "the minicluster"
    REMEDY = _REMEDY
    DURABLE = True
    ERROR = CorruptStateError

    offset: dict[str, Any]
    reached: Reached
    tasks: list[tuple[int, int, bytes, bytes | None]]

    def stored_tasks(self) -> StoredTasks:
        """The tasks as a `StateStore` has them."""
        return {(vertex, subtask): (header, body) for vertex, subtask, header, body in self.tasks}


@dataclass(frozen=True)
class Committed(StoredFile):
    """The last committed epoch; whether all input had ended by then; the encoded totals of the accumulators."""

    NAME = "committed.json"
    FOLDER = "minicluster"
    WHEN = "in the minicluster"
    READER = "the minicluster"
    REMEDY = _REMEDY
    DURABLE = True
    ERROR = CorruptStateError

    epoch: int
    finished: bool = False
    accumulators: bytes = field(default=b"")


class StoredEpochs:
    """Reads, writes and deletes the stored epochs of one job.

    Args:
        path: path of the directory.
        fence: is checked before each write.
    """

    def __init__(self, path: str, fence: Fence) -> None:
        self.path = path
        self.fence = fence
        self._storage = storage_of(self.path)
        self._prepared = PreparedEpochs(prepared_directory(self.path))

    def sweep(self) -> None:
        """Delete what a process that was killed has left of files that it was writing. To be called before any epoch
        runs."""
        self._prepared.delete_unreferenced(self.fence)
        with storage_errors("delete", self.path):
            for entry in self._storage.list(self.path):
                if entry.is_file and entry.name.startswith("."):
                    self._storage.delete(entry.path)

    # ------------------------------------------------------------------ reading

    def committed(self) -> Committed | None:
        """The last committed epoch; None: there is none."""
        return Committed.read(self.path)

    def epoch(self, number: int) -> StoredEpoch:
        """The end of an epoch that is prepared or committed.

        Raises:
            CorruptStateError: the file is missing or damaged.
        """
        found = StoredEpoch.read(self.path, number)
        if found is None:
            raise StoredEpoch.damaged(StoredEpoch.path_in(self.path, number), "it is missing")
        return found

    def prepared(self, after: int) -> PreparedEpoch | None:
        """The prepared epoch behind this committed one; None: there is none."""
        numbers = [number for number in self._prepared.epochs() if number > after]
        return self._prepared.read(numbers[-1]) if numbers else None

    # ------------------------------------------------------------------ writing

    def write(self, number: int, offset: dict[str, Any], reached: Reached, tasks: StoredTasks) -> None:
        """Write the end of an epoch, which counts once it is prepared or committed."""
        self.fence.check()
        StoredEpoch(offset, reached, [(*task, *both) for task, both in sorted(tasks.items())]).write(self.path, number)

    def prepare(self, prepared: PreparedEpoch) -> None:
        """Prepare an epoch whose end is written."""
        self._prepared.write(prepared, self.fence)

    def commit(self, committed: Committed) -> None:
        """Make an epoch, whose end is written, the one that the job goes on from; delete those before it."""
        self.fence.check()
        committed.write(self.path)
        self._prepared.delete_up_to(committed.epoch, self.fence)
        with storage_errors("delete", self.path):
            for entry in self._storage.list(self.path):
                parts = StoredEpoch.parts_of(entry.name)
                if entry.is_file and parts is not None and int(parts[0]) < committed.epoch:
                    self._storage.delete(entry.path)
