"""Prepared epochs: one file per epoch that holds, or refers to, all that the commit of the epoch needs.

The file says by uid which sink each part of the epoch is for, since the program that commits it need not be the one
that has prepared it.

Rule: before the file exists, nothing of the epoch was committed to any sink, and the epoch is run again as a whole.
From then on the epoch is never run again: whichever driver continues the job commits what the file says. So state and
output of an epoch always come from the same run, whatever its functions do, and no sink gets two contents for an epoch.

An epoch that has neither output for a sink nor additions to accumulators need not be prepared and has no file.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from flinkish.core.fence import Fence
from flinkish.core.sink import Sink
from flinkish.errors import FencedError, IncompatibleJobError
from flinkish.runtime.deployment import JobDescriptor, SinkDescriptor, sink_of
from flinkish.runtime.epoch_files import damaged_output
from flinkish.runtime.exchange.buffer import decode
from flinkish.storage.paths import FileKind
from flinkish.storage.sealed import sealed, unsealed_as
from flinkish.storage.stores import storage_error, storage_errors, storage_of

_SUFFIX = ".json"

#: The identity of a sink with a generated uid: the uid and the destination (`SinkDescriptor.identity`).
_GENERATED = re.compile(r"([a-z0-9-]+-[0-9]+): (.+)", re.DOTALL)

#: Version of the format of the file.
FORMAT_VERSION = 3


@dataclass(frozen=True)
class PreparedEpoch:
    """The reports and the committables of an epoch whose tasks have all ended."""

    epoch: int
    #: processing time of the epoch
    time_ms: int
    #: whether the epoch is the last one of the job
    end_of_input: bool
    #: the reports of the tasks, as the tasks have encoded them
    reports: tuple[bytes, ...]
    #: buffers with committables for the sinks, as the tasks have encoded them
    committables: tuple[bytes, ...]
    #: the identities of the sinks of the program that has prepared the epoch, by their numbers in the buffers
    sinks: tuple[str, ...]

    def by_target(self, job: JobDescriptor) -> list[tuple[int, int, list[bytes]]]:
        """The committables as (number of the sink in this job, subtask, its buffers), each of which makes one commit,
        in a fixed order.

        Raises:
            IncompatibleJobError: the program has no sink for a part of the epoch.
        """
        found: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        for data in self.committables:
            header = decode(data).header
            found[sink_of(header.vertex), header.subtask].append(data)
        numbers = {number: sink_of_identity(job, self.sinks[number], self.epoch, self.sinks).id for number, _ in found}
        return sorted((numbers[sink], subtask, buffers) for (sink, subtask), buffers in found.items())

    def uids(self, job: JobDescriptor) -> dict[int, str]:
        """The number of a sink in this job -> its uid when the epoch was prepared, of the sinks whose generated uid has
        changed since: a part that is committed already was committed under that one."""
        found = ((_sink_that_moved(job, identity, self.sinks), identity) for identity in self.sinks)
        return {sink.id: _generated(identity)[0] for sink, identity in found if sink is not None}


def identities_of(job: JobDescriptor) -> tuple[str, ...]:
    """The identities of a program's sinks, by their numbers."""
    return tuple(sink.identity for sink in job.sinks)


def sink_of_identity(job: JobDescriptor, identity: str, epoch: int, before: Sequence[str] = ()) -> SinkDescriptor:
    """The sink of the program that an epoch, which an earlier program with the sinks ``before`` has prepared, has
    something for.

    Raises:
        IncompatibleJobError: the program has no such sink.
    """
    for sink in job.sinks:
        if sink.identity == identity:
            return sink
    moved = _sink_that_moved(job, identity, before)
    if moved is not None:
        return moved
    raise IncompatibleJobError(
        f"epoch {epoch} is prepared and has output for the sink '{identity}', which the program does not have",
        where=f"job '{job.name}', epoch {epoch}",
        expected=f"the sinks of the program that has prepared the epoch; this one has "
        f"{', '.join(map(repr, identities_of(job))) or 'none'}",
        hint="start the program as it was in this directory once more: it commits the epoch; stop it, then change its "
        "sinks (give each a uid of its own)",
    )


def _sink_that_moved(job: JobDescriptor, identity: str, before: Sequence[str]) -> SinkDescriptor | None:
    """The sink of the program that writes to where the one of this identity did, if its generated uid has changed, as
    those of operators behind a new one do. None: there is none, or several, or it does not say where it writes to."""
    destination = _generated(identity)[1]
    if not destination or [_generated(other)[1] for other in before].count(destination) != 1:
        return None
    if any(sink.identity == identity for sink in job.sinks):
        return None
    same = [sink for sink in job.sinks if _generated("" if sink.uid_given else sink.identity)[1] == destination]
    if len(same) != 1 or type(same[0].sink)._destination is Sink._destination:
        return None
    return same[0]


def _generated(identity: str) -> tuple[str, str]:
    """The uid and the destination in the identity of a sink with a generated uid; of another one, two empty texts."""
    match = _GENERATED.fullmatch(identity)
    return (match[1], match[2]) if match else ("", "")


class PreparedEpochs:
    """Reads, writes and deletes the prepared epochs of one query, with the files that they refer to."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._storage = storage_of(path)

    def file(self, epoch: int) -> str:
        """The path of the file of an epoch."""
        return posixpath.join(self.path, f"{epoch}{_SUFFIX}")

    def read(self, epoch: int) -> PreparedEpoch | None:
        """Read a prepared epoch; None if the epoch is not prepared.

        Raises:
            CorruptStateError: the file of the epoch is damaged; the error names it.
        """
        path = self.file(epoch)
        try:
            return _decoded(self._storage.read(path, FileKind.JOB_FILE), epoch)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error(error, "read", path) from error
        except ValueError as error:
            raise damaged_output(path, f"damaged ({error})") from error

    def write(self, prepared: PreparedEpoch, fence: Fence, replacing: bool = False) -> None:
        """Prepare an epoch by writing its file; ``replacing``: in the place of the file that it has.

        Raises:
            FencedError: this driver does not own the job any more, or another process has prepared the epoch meanwhile.
        """
        path = self.file(prepared.epoch)
        self._storage.synchronise(posixpath.join(self.path, str(prepared.epoch)))
        data = sealed(
            {
                "version": FORMAT_VERSION,
                "epoch": prepared.epoch,
                "time_ms": prepared.time_ms,
                "end_of_input": prepared.end_of_input,
                "fencing_token": fence.token,
                "reports": _texts(prepared.reports),
                "committables": _texts(prepared.committables),
                "sinks": prepared.sinks,
            }
        )
        fence.check()
        try:
            if replacing:
                self._storage.replace(path, data, durable=True)
            else:
                self._storage.create(path, data)
        except FileExistsError:
            # if there is a newer driver, the file is that of its query, in the place of this one
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
        """The prepared epochs that have not been deleted, in order. Only the names of files are read."""
        return sorted(int(name[: -len(_SUFFIX)]) for name in self._names() if name.endswith(_SUFFIX))

    def delete_up_to(self, epoch: int, fence: Fence) -> None:
        """Delete all files of the epochs up to this one, which will never be delivered again."""
        self._delete([name for name in self._names() if int(name.removesuffix(_SUFFIX)) <= epoch], fence)

    def delete_unreferenced(self, fence: Fence) -> None:
        """Delete the files that failed runs of epochs that are not prepared have left behind. To be called only while
        no epoch runs, since the files of a running epoch are referenced only after it is prepared."""
        names = self._names()
        self._delete([name for name in names if name.isdigit() and f"{name}{_SUFFIX}" not in names], fence)
        self._delete([name for name in self._all_names() if name.startswith(".")], fence)

    def _delete(self, names: list[str], fence: Fence) -> None:
        if not names:
            return
        fence.check()
        # the file of an epoch is deleted before the files that it refers to, without which it would be a damaged one
        for name in sorted(names, key=lambda name: not name.endswith(_SUFFIX)):
            path = posixpath.join(self.path, name)
            with storage_errors("delete", path):
                if name.isdigit():
                    self._storage.delete_directory(path)
                else:
                    self._storage.delete(path)

    def _names(self) -> list[str]:
        return [name for name in self._all_names() if name.removesuffix(_SUFFIX).isdigit()]

    def _all_names(self) -> list[str]:
        with storage_errors("read", self.path):
            return [entry.name for entry in self._storage.list(self.path)]


def prepared_directory(query: str) -> str:
    """The directory of the prepared epochs of a query."""
    return posixpath.join(query, "prepared")


def _decoded(data: bytes, epoch: int) -> PreparedEpoch:
    version = unsealed_as(_Version, data)
    if version.version != FORMAT_VERSION or version.epoch != epoch:
        raise ValueError(f"it is version {version.version} of epoch {version.epoch}")
    return unsealed_as(PreparedEpoch, data)


@dataclass(frozen=True)
class _Version:
    """What the file of a prepared epoch of any version says of itself."""

    version: int
    epoch: int


def _texts(values: tuple[bytes, ...]) -> list[str]:
    return [base64.b64encode(value).decode() for value in values]
