"""The directory of a job's checkpoints: where they are, and which of them are complete.

    <checkpoints>/counter.json           the last number that was given to a checkpoint
    <checkpoints>/state/                 Delta: the state of the last checkpoint that was full, or after which changes
                                         were merged; older checkpoints refer to earlier versions
    <checkpoints>/changes/               Delta: what has changed since (see `incremental`)
    <checkpoints>/ended/                 ids of splits that sources have read, to which positions of checkpoints refer
    <checkpoints>/chk-17/manifest.json   written last: without it there is no checkpoint 17

Rule: a number is given once, whatever becomes of the checkpoint. Only what was there before the check that the job is
still this driver's (``check``) is deleted, so nothing that a newer driver has made.
"""

from __future__ import annotations

import json
import posixpath
import re
import uuid
from collections.abc import Callable
from contextlib import suppress

from flinkish.errors import SavepointError
from flinkish.jobmanager.savepoints.manifest import (
    ENDED,
    MANIFEST,
    Manifest,
    read_manifest,
    write_ids,
    write_manifest,
)
from flinkish.runtime.sources.progress import files_of
from flinkish.storage.files import (
    child_names,
    delete_directory,
    delete_directory_at_once,
    delete_file,
    read_bytes,
    write_bytes,
)
from flinkish.storage.paths import FileKind, absolute
from flinkish.storage.sealed import json_as

_NUMBERED = re.compile(r"chk-(\d+)")
_COUNTER = "counter.json"


class CheckpointDirectory:
    """Numbers, lists, reads, writes and deletes the checkpoints of one job. A checkpoint is complete once its manifest
    is written."""

    def __init__(self, path: str) -> None:
        self.path = absolute(path)
        #: segment of a list of splits -> the file with the ids of its splits; None: not known yet
        self._ended: dict[str, str] | None = None
        #: part of the names of files that this driver writes, which an earlier one therefore never deletes
        self._token = uuid.uuid4().hex[:8]

    @property
    def table(self) -> str:
        """Path of the Delta table of state."""
        return posixpath.join(self.path, "state")

    @property
    def changes(self) -> str:
        """Path of the Delta table of changes."""
        return posixpath.join(self.path, "changes")

    @property
    def ended(self) -> str:
        """Path of the directory of the files with ids of splits."""
        return posixpath.join(self.path, ENDED)

    def store_ids(self, segment: str, ids: Callable[[], list[str]]) -> str:
        """Store the ids of the splits of a segment in a file, unless the last completed checkpoint or a later one
        refers to such a file; returns its name."""
        if self._ended is None:
            files = set[str]()
            with suppress(SavepointError):
                files = self._referred(self.completed()[-1:])
            self._ended = {name.partition("-")[0]: name for name in files}
        if segment not in self._ended:
            name = f"{segment}-{self._token}"
            write_ids(self.ended, name, ids())
            self._ended[segment] = name
        return self._ended[segment]

    def _referred(self, numbers: list[int]) -> set[str]:
        """The files with ids of splits to which these checkpoints refer."""
        manifests = map(self.read, numbers)
        return {name for one in manifests for position in one.sources.values() for name in files_of(position)}

    def checkpoint(self, number: int) -> str:
        """Path of one checkpoint, from which a job can be restored."""
        return posixpath.join(self.path, f"chk-{number}")

    def next_id(self) -> int:
        """Reserve a number that no checkpoint of the job has had; returns it."""
        try:
            data = read_bytes(posixpath.join(self.path, _COUNTER), FileKind.COUNTER)
            counted = 0 if data is None else json_as(dict[str, int], data).get("last", 0)
        except ValueError:
            # the counter is damaged: numbers only have to rise
            counted = 0
        number = max([counted, *self._ids()]) + 1
        write_bytes(posixpath.join(self.path, _COUNTER), json.dumps({"last": number}).encode())
        return number

    def _ids(self) -> list[int]:
        found = (_NUMBERED.fullmatch(name) for name in child_names(self.path))
        return sorted(int(match.group(1)) for match in found if match)

    def completed(self) -> list[int]:
        """The numbers of the completed checkpoints, in ascending order."""
        return self._whole(self._ids())

    def _whole(self, numbers: list[int]) -> list[int]:
        return [number for number in numbers if MANIFEST in child_names(self.checkpoint(number))]

    def write(self, number: int, manifest: Manifest) -> None:
        """Write the manifest of a checkpoint, which completes it."""
        write_manifest(self.checkpoint(number), manifest)

    def read(self, number: int) -> Manifest:
        """The manifest of a checkpoint, as it is written: its positions may refer to files. Raises SavepointError when
        it is damaged or there is none."""
        return read_manifest(self.checkpoint(number), whole=False)

    def drop_but(self, retained: int, check: Callable[[], None]) -> list[int]:
        """Delete all but the last ``retained`` completed checkpoints, and those before the newest that were never
        completed; returns the numbers of the completed checkpoints that are left.

        ``check``: raises when the job is no longer this driver's; then nothing is deleted.
        """
        there, ended = self._ids(), set(child_names(self.ended))
        left = self._whole(there)[-retained:]
        unneeded = self._unneeded(ended, left)
        check()
        for number in there:
            if left and number not in left and number < left[-1]:
                delete_directory(self.checkpoint(number))
        for name in unneeded:
            delete_file(posixpath.join(self.ended, name))
        if unneeded:
            self._ended = None
        return left

    def _unneeded(self, ended: set[str], left: list[int]) -> set[str]:
        """Those of the files with ids of splits to which none of these checkpoints refers. The newest one refers to
        most of them, and often to all."""
        try:
            for number in reversed(left):
                if ended:
                    ended = ended - {f"{name}.json" for name in self._referred([number])}
        except SavepointError:
            # it is not known what a damaged checkpoint refers to
            return set()
        return ended if left else set()

    def delete(self, check: Callable[[], None]) -> None:
        """Delete all checkpoints and their tables; the counter stays, so no number is given again. ``check``: as for
        `drop_but`."""
        there = self._ids()
        check()
        for number in there:
            delete_directory(self.checkpoint(number))
        check()
        for directory in (self.table, self.changes, self.ended):
            delete_directory_at_once(directory)
        self._ended = None
