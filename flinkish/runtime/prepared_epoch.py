"""The barrier of an epoch: one file that holds, or refers to, all that its commit needs.

Rule: before the file is there, no sink has heard of the epoch, and the epoch is run again as a whole. From then on the
epoch is never run again: whoever goes on with the job commits what the file says. So state and output of an epoch
always come from the same run, whatever its functions do, and no sink is told two contents for one epoch.

An epoch that gives nothing to any sink needs no barrier and has no file.
"""

from __future__ import annotations

import base64
import posixpath
from collections import defaultdict
from dataclasses import dataclass

from flinkish.common.durable_files import create_durably, delete, sync_directory
from flinkish.common.sealed_json import sealed, unsealed
from flinkish.common.storage import place
from flinkish.common.storage_errors import storage_error, storage_errors
from flinkish.core.fence import Fence
from flinkish.errors import FencedError
from flinkish.runtime.buffer import decode
from flinkish.runtime.deployment import sink_of
from flinkish.runtime.epoch_files import damaged_output

_SUFFIX = ".json"

#: Version of the file.
FORMAT_VERSION = 2


@dataclass(frozen=True)
class PreparedEpoch:
    """An epoch of which every task has ended."""

    epoch: int
    #: processing time of the epoch
    time_ms: int
    #: it is the last one of the job
    end_of_input: bool
    #: what the tasks say of it, as they have encoded it
    reports: tuple[bytes, ...]
    #: what they give to sinks: buffers, as they have encoded them
    committables: tuple[bytes, ...]

    def by_target(self) -> list[tuple[int, int, list[bytes]]]:
        """(sink, subtask, its buffers): what is committed as one, in an order that is always the same."""
        found: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        for data in self.committables:
            header = decode(data).header
            found[sink_of(header.vertex), header.subtask].append(data)
        return [(sink, subtask, found[sink, subtask]) for sink, subtask in sorted(found)]


class PreparedEpochs:
    """The prepared epochs of one query, and the files that they refer to."""

    def __init__(self, path: str) -> None:
        self.path = path

    def file(self, epoch: int) -> str:
        """Path of the file of an epoch."""
        return posixpath.join(self.path, f"{epoch}{_SUFFIX}")

    def read(self, epoch: int) -> PreparedEpoch | None:
        """A prepared epoch; None: it is not prepared.

        Raises:
            CorruptStateError: its file is damaged; names it.
        """
        path = self.file(epoch)
        filesystem, root = place(path)
        try:
            with filesystem.open_input_stream(root) as stream:
                data = stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error(error, "read", path) from error
        try:
            return _decoded(data, epoch)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged_output(path, f"damaged ({error})") from error

    def write(self, prepared: PreparedEpoch, fence: Fence) -> None:
        """Prepare an epoch.

        Raises:
            FencedError: the job is no longer this driver's, or another process has prepared the epoch meanwhile.
        """
        path = self.file(prepared.epoch)
        sync_directory(posixpath.join(self.path, str(prepared.epoch)))
        data = sealed(
            {
                "version": FORMAT_VERSION,
                "epoch": prepared.epoch,
                "time_ms": prepared.time_ms,
                "end_of_input": prepared.end_of_input,
                "fencing_token": fence.token,
                "reports": _texts(prepared.reports),
                "committables": _texts(prepared.committables),
            }
        )
        fence.check()
        try:
            create_durably(path, data)
        except FileExistsError:
            # with a newer driver: its file is where this query was
            fence.check()
            raise FencedError(
                f"epoch {prepared.epoch} has been prepared by another process meanwhile",
                where=path,
                expected="one process that runs the epochs of a job",
                hint="start the job again: it commits what was prepared",
            ) from None
        except OSError as error:
            fence.check()
            raise storage_error(error, "write", path) from error

    def epochs(self) -> list[int]:
        """The prepared epochs that were not deleted since, in order, by the names of their files alone."""
        return sorted(int(name[: -len(_SUFFIX)]) for name in self._names() if name.endswith(_SUFFIX))

    def delete_up_to(self, epoch: int, fence: Fence) -> None:
        """Delete all files of these epochs, which will never be delivered again."""
        self._delete([name for name in self._names() if int(name.removesuffix(_SUFFIX)) <= epoch], fence)

    def delete_unreferenced(self, fence: Fence) -> None:
        """Delete what runs that have failed have left behind of epochs that are not prepared. To be called while no
        epoch runs: what a task has written becomes referenced when its epoch is prepared."""
        names = self._names()
        self._delete([name for name in names if name.isdigit() and f"{name}{_SUFFIX}" not in names], fence)
        self._delete([name for name in self._all_names() if name.startswith(".")], fence)

    def _delete(self, names: list[str], fence: Fence) -> None:
        if not names:
            return
        fence.check()
        # an epoch's own file goes first: without what it refers to it would be a damaged one
        for name in sorted(names, key=lambda name: not name.endswith(_SUFFIX)):
            path = posixpath.join(self.path, name)
            with storage_errors("delete", path):
                if name.isdigit():
                    _delete_directory(path)
                else:
                    delete(path)

    def _names(self) -> list[str]:
        return [name for name in self._all_names() if name.removesuffix(_SUFFIX).isdigit()]

    def _all_names(self) -> list[str]:
        from pyarrow import fs

        filesystem, root = place(self.path)
        try:
            found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
        except OSError as error:
            raise storage_error(error, "read", self.path) from error
        return [info.base_name for info in found]


def prepared_directory(query: str) -> str:
    """Where a query keeps its prepared epochs."""
    return posixpath.join(query, "prepared")


def _delete_directory(path: str) -> None:
    filesystem, root = place(path)
    try:
        filesystem.delete_dir(root)
    except FileNotFoundError:
        return


def _decoded(data: bytes, epoch: int) -> PreparedEpoch:
    content = unsealed(data)
    if content["version"] != FORMAT_VERSION or content["epoch"] != epoch:
        raise ValueError(f"it is version {content['version']} of epoch {content['epoch']}")
    return PreparedEpoch(
        epoch,
        int(content["time_ms"]),
        bool(content["end_of_input"]),
        tuple(map(base64.b64decode, content["reports"])),
        tuple(map(base64.b64decode, content["committables"])),
    )


def _texts(values: tuple[bytes, ...]) -> list[str]:
    return [base64.b64encode(value).decode() for value in values]
