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

import base64
import posixpath
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from flinkish.core.sink import Fence
from flinkish.errors import CorruptStateError
from flinkish.runtime.epoch.files import PreparedEpoch, PreparedEpochs, prepared_directory
from flinkish.runtime.sources.alignment import Reached
from flinkish.storage.paths import FileKind
from flinkish.storage.sealed import sealed, unsealed_as
from flinkish.storage.stores import storage_errors, storage_of

#: Version of the files.
_VERSION = 2
_COMMITTED = "committed.json"

_Kind = TypeVar("_Kind")

#: (vertex, subtask) -> encoded header and body
StoredTasks = dict[tuple[int, int], tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class StoredEpoch:
    """The end of an epoch: the positions of the sources, what their tasks have reached, and all stored tasks."""

    offset: dict[str, Any]
    reached: Reached
    tasks: list[tuple[int, int, bytes, bytes | None]]

    def stored_tasks(self) -> StoredTasks:
        """The tasks as a `StateStore` has them."""
        return {(vertex, subtask): (header, body) for vertex, subtask, header, body in self.tasks}


@dataclass(frozen=True)
class Committed:
    """The last committed epoch; whether all input had ended by then; the encoded totals of the accumulators."""

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
        return self._read(_COMMITTED, Committed)

    def epoch(self, number: int) -> StoredEpoch:
        """The end of an epoch that is prepared or committed.

        Raises:
            CorruptStateError: the file is missing or damaged.
        """
        found = self._read(f"{number}.json", StoredEpoch)
        if found is None:
            raise self._damaged(f"{number}.json", "missing")
        return found

    def prepared(self, after: int) -> PreparedEpoch | None:
        """The prepared epoch behind this committed one; None: there is none."""
        numbers = [number for number in self._prepared.epochs() if number > after]
        return self._prepared.read(numbers[-1]) if numbers else None

    def _read(self, name: str, kind: type[_Kind]) -> _Kind | None:
        path = posixpath.join(self.path, name)
        try:
            with storage_errors("read", path):
                try:
                    data = self._storage.read(path, FileKind.JOB_FILE)
                except (FileNotFoundError, NotADirectoryError):
                    return None
            return unsealed_as(kind, data)
        except ValueError as error:
            raise self._damaged(name, f"damaged: {error}") from error

    def _damaged(self, name: str, how: str) -> CorruptStateError:
        path = posixpath.join(self.path, name)
        return CorruptStateError(
            f"the state of an epoch cannot be read: {path} is {how}",
            where=path,
            expected="the file as flinkish wrote it",
            hint="restore the file from a copy, or start the job in a new directory from its last checkpoint "
            "(-s JOB_DIR/checkpoints/chk-<number>) or savepoint",
        )

    # ------------------------------------------------------------------ writing

    def write(self, number: int, offset: dict[str, Any], reached: Reached, tasks: StoredTasks) -> None:
        """Write the end of an epoch, which counts once it is prepared or committed."""
        encoded = [(*task, _text(header), _text(body)) for task, (header, body) in sorted(tasks.items())]
        self._write(f"{number}.json", {"offset": offset, "reached": asdict(reached), "tasks": encoded})

    def prepare(self, prepared: PreparedEpoch) -> None:
        """Prepare an epoch whose end is written."""
        self._prepared.write(prepared, self.fence)

    def commit(self, committed: Committed) -> None:
        """Make an epoch, whose end is written, the one that the job goes on from; delete those before it."""
        texts = {**asdict(committed), "accumulators": _text(committed.accumulators)}
        self._write(_COMMITTED, texts)
        self._prepared.delete_up_to(committed.epoch, self.fence)
        with storage_errors("delete", self.path):
            for entry in self._storage.list(self.path):
                number = entry.name.removesuffix(".json")
                if entry.is_file and number.isdigit() and int(number) < committed.epoch:
                    self._storage.delete(entry.path)

    def _write(self, name: str, value: dict[str, Any]) -> None:
        path = posixpath.join(self.path, name)
        self.fence.check()
        with storage_errors("write", path):
            self._storage.replace(path, sealed({"version": _VERSION, **value}), durable=True)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
