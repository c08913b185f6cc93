"""What a driver finds in a job directory in which a job has run: the prepared epoch that waits to be committed, the
marker of a drain that has begun, and what the sources have read before.

Rule: what a sink refuses is taken out of the epoch only by a process that owns the job directory, and only after it is
durable in a file of the operator's. So nothing is lost silently, and no driver commits an epoch while it is changed.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from flinkish.common.configuration import Configuration
from flinkish.common.types import Row
from flinkish.core.source import Source
from flinkish.errors import ConfigurationError, FinalOperationError, FlinkishError, StoredClassError, UnsafeStateError
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.layout import Job, Sources
from flinkish.jobdir.ownership import REFUSE, take_ownership
from flinkish.jobdir.query import QueryLog
from flinkish.runtime.epoch.changelog_files import changelog_directory
from flinkish.runtime.epoch.files import EpochFiles, PreparedEpoch, PreparedEpochs, prepared_directory
from flinkish.runtime.exchange.buffer import Buffer, BufferKind, decode, encode
from flinkish.runtime.job.deployment import JobDescriptor, sink_of
from flinkish.runtime.operators.columns import batches_of, encoded
from flinkish.runtime.operators.source_and_sink import decode_committables, encode_committables
from flinkish.runtime.sources.progress import known_in
from flinkish.spark.session import get_session
from flinkish.storage.files import child_names
from flinkish.storage.stores import storage_errors

#: An Arrow stream begins with this mark; the columns for a DataFrame sink are such streams.
_ARROW = b"\xff\xff\xff\xff"


class _Stored(bytes):
    """Committables of which only the program knows the classes, as they are stored."""


@dataclass(frozen=True)
class OutputRecord:
    """A record that an epoch holds for a subtask of a sink."""

    sink: str
    subtask: int
    number: int
    value: Any

    def as_json(self, epoch: int) -> str:
        """One line of JSON. Values that JSON does not have are texts; bytes are texts in base64."""
        place = {"epoch": epoch, "sink": self.sink, "subtask": self.subtask, "number": self.number}
        return json.dumps({**place, "record": _plain(self.value)}, ensure_ascii=True)


class WaitingEpoch:
    """The prepared epoch of a job directory that waits to be committed.

    Records are numbered from 1 for each (sink, subtask), in the order in which the sink's committer is given them.

    Raises:
        FinalOperationError: there is none.
    """

    def __init__(self, directory: JobDirectory) -> None:
        location = directory.query_location()
        self._directory = directory
        self._epochs = PreparedEpochs(prepared_directory(location.path))
        self._files = EpochFiles(self._epochs.path, changelog_directory(directory.path))
        self._prepared = self._waiting(location)
        self.epoch = self._prepared.epoch

    def _waiting(self, location: QueryLocation) -> PreparedEpoch:
        committed = QueryLog(location.path).committed()
        after = location.first_epoch + (committed[-1] if committed else -1)
        for epoch in self._epochs.epochs():
            found = self._epochs.read(epoch) if epoch > after else None
            if found is not None:
                return found
        raise FinalOperationError(
            "no epoch waits to be committed",
            where=self._directory.path,
            expected="the directory of a job that has ended while a sink refused a prepared epoch",
            hint="start the job: it goes on with the next epoch",
        )

    def counts(self) -> dict[tuple[str, int], int]:
        """The number of records for each (sink, subtask)."""
        return dict(Counter((record.sink, record.subtask) for record in self.records()))

    def records(self, sink: str | None = None, subtask: int | None = None) -> Iterator[OutputRecord]:
        """The records for a sink (None: for all of them) and a subtask of it (None: all)."""
        for (name, index), buffers in self._targets(sink, subtask):
            number = 0
            for buffer in buffers:
                for committable in self._committables(buffer)[1]:
                    for value in _values(committable):
                        number += 1
                        yield OutputRecord(name, index, number, value)

    def skip(self, sink: str, subtask: int | None, numbers: Collection[int] | None, into: str) -> int:
        """Append records to the file ``into``, one line of JSON each, and take them out of the epoch; returns how many.
        The directory must be owned by this process.

        Args:
            sink, subtask: whose records are taken out; None: those of all subtasks.
            numbers: the numbers of the records; None: all of them.
            into: path of the file, which is created if it does not exist.

        Raises:
            ConfigurationError: there are no such records.
        """
        subtasks = [index for (_, index), _ in self._targets(sink, subtask)]
        if numbers is not None and len(subtasks) > 1:
            raise ConfigurationError(
                f"the records {sorted(numbers)} of which subtask of the sink '{sink}'?",
                where=f"epoch {self.epoch}, {self._directory.path}",
                expected=f"--subtask, one of {subtasks}",
                hint="each subtask numbers its records from 1",
            )
        records = [record for record in self.records(sink, subtask) if numbers is None or record.number in numbers]
        absent = set(numbers or ()) - {record.number for record in records}
        if absent or not records:
            what = f"no record {min(absent)}" if absent else "nothing"
            raise ConfigurationError(
                f"the epoch holds {what} for the sink '{sink}'",
                where=f"epoch {self.epoch}, {self._directory.path}",
                expected=f"one of {', '.join(f'{name}/{index} (1-{n})' for (name, index), n in self.counts().items())}",
                hint="without --skip, the command shows the records with their numbers",
            )
        with storage_errors("write", into), open(into, "a", encoding="utf-8") as file:
            file.writelines(f"{record.as_json(self.epoch)}\n" for record in records)
            file.flush()
            os.fsync(file.fileno())
        kept = [data for data in self._prepared.committables if not self._is_for(decode(data), sink, subtask)]
        for (_, _), buffers in self._targets(sink, subtask):
            kept += self._without(buffers, numbers)
        self._prepared = replace(self._prepared, committables=tuple(kept))
        self._epochs.write(self._prepared, self._directory.fence, replacing=True)
        return len(records)

    def _targets(self, sink: str | None, subtask: int | None) -> list[tuple[tuple[str, int], list[Buffer]]]:
        found: dict[tuple[str, int], list[Buffer]] = defaultdict(list)
        for data in self._prepared.committables:
            buffer = decode(data)
            if self._is_for(buffer, sink, subtask):
                found[self._sink(buffer), buffer.header.subtask].append(buffer)
        for buffers in found.values():
            buffers.sort(key=lambda buffer: (buffer.header.origin, buffer.header.part, buffer.header.sequence))
        return sorted(found.items(), key=lambda target: target[0])

    def _is_for(self, buffer: Buffer, sink: str | None, subtask: int | None) -> bool:
        name = self._sink(buffer)
        # a sink without a uid of its own is called by its generated uid and where it writes to
        fits = sink is None or name == sink or name.startswith(f"{sink}: ")
        return fits and subtask in (None, buffer.header.subtask)

    def _sink(self, buffer: Buffer) -> str:
        number = sink_of(buffer.header.vertex)
        names: tuple[str, ...] = getattr(self._prepared, "sinks", ())
        return names[number] if names else str(number)

    def _committables(self, buffer: Buffer) -> tuple[int, list[Any]]:
        payload = self._files.payload(buffer)
        try:
            return decode_committables(payload)
        except (StoredClassError, UnsafeStateError):
            return 0, [_Stored(payload)]

    def _without(self, buffers: list[Buffer], numbers: Collection[int] | None) -> Iterator[bytes]:
        """The buffers without the records with these numbers."""
        number = 0
        for buffer in buffers if numbers is not None else ():
            time_ms, committables = self._committables(buffer)
            left, count = [], 0
            for committable in committables:
                keep = []
                for _ in _values(committable):
                    number += 1
                    keep.append(number not in (numbers or ()))
                left += _kept(committable, keep)
                count += sum(keep)
            if len(left) == len(committables) and all(a is b for a, b in zip(left, committables, strict=True)):
                yield encode(*buffer)
            elif left:
                header = buffer.header._replace(kind=BufferKind.COMMITTABLES, records=count)
                yield encode(header, encode_committables(time_ms, left))


def open_waiting(path: str) -> WaitingEpoch:
    """The waiting epoch of the job directory at that path, to be looked at.

    Raises:
        FinalOperationError: the path is no job directory, or no epoch waits.
    """
    return WaitingEpoch(existing_directory(path))


def skip_output(path: str, sink: str, subtask: int | None, numbers: Collection[int] | None, into: str) -> int:
    """Own the job directory, take records out of its waiting epoch (`WaitingEpoch.skip`), and give it back.

    Raises:
        FencedError: a driver runs the job.
    """
    directory = existing_directory(path)
    spark = None if directory.is_local else get_session(Configuration(), "flinkish prepared")
    job = directory.read(Job)
    take_ownership(spark, directory, "" if job is None else job.name, REFUSE)
    try:
        return WaitingEpoch(directory).skip(sink, subtask, numbers, into)
    finally:
        directory.release()


def _batches(committable: Any) -> list[pa.RecordBatch] | None:
    """The columns for a DataFrame sink; None for other committables."""
    if type(committable) is not bytes or not committable.startswith(_ARROW):
        return None
    try:
        return list(batches_of([committable]))
    except pa.ArrowException:
        return None


def _values(committable: Any) -> list[Any]:
    """The records that a committable consists of."""
    batches = _batches(committable)
    return [committable] if batches is None else [row for batch in batches for row in batch.to_pylist()]


def _kept(committable: Any, keep: list[bool]) -> list[Any]:
    """The committable, or what is left of it, for each of whose records ``keep`` says whether it stays."""
    if all(keep):
        return [committable]
    batches = _batches(committable)
    if batches is None or not any(keep):
        return []
    whole = pa.Table.from_batches(batches).filter(pa.array(keep)).combine_chunks().to_batches()
    return [encoded(batch) for batch in whole]


def _plain(value: Any) -> Any:
    """The value in terms of JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Row):
        fields = getattr(value, "_fields", None)
        plain = [_plain(item) for item in value] if fields is None else _plain(value.as_dict())
        return plain if str(value.get_row_kind()) == "+I" else {"kind": str(value.get_row_kind()), "row": plain}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {"stored" if isinstance(value, _Stored) else "base64": base64.b64encode(value).decode()}
    return str(value)


def existing_directory(path: str) -> JobDirectory:
    """The job directory at that path, which is not created if it does not exist.

    Raises:
        FinalOperationError: the path is not the directory of a job.
    """
    if Job.NAME not in child_names(path):
        raise FinalOperationError(
            f"{path} is not the directory of a job", expected="the flinkish.job.dir of a job that has run"
        )
    return JobDirectory(path)


#: Name of the directory of the drain's query.
QUERY_NAME = "spark-drain"


def state_rows(directory: JobDirectory) -> str:
    """Directory of the state with which the drain begins."""
    return posixpath.join(directory.path, "drain-state")


def has_moved(directory: JobDirectory) -> bool:
    """Whether the drain's state is written and its query is the job's."""
    # a newer driver may have moved the query, which adds a suffix to its name
    return posixpath.basename(directory.query_location().path).startswith(QUERY_NAME)


def known_sources(directory: JobDirectory) -> dict[str, dict[str, str]]:
    """Source uid -> ids of the things that it read when the job was last started (topic -> its id), which tell them
    from others of the same name."""
    return (directory.read(Sources) or Sources({})).sources


def continue_sources(
    job: JobDescriptor, sources: Mapping[int, Source], directory: JobDirectory, positions: Mapping[str, str]
) -> None:
    """Ask each source whether it can go on from its position, and remember in `Sources` what it reads.

    Rule: a job goes on with the input that it has read before. If that has been deleted meanwhile, or been replaced by
    something else of the same name, an error says so before anything is read.

    Args:
        sources: number of a vertex -> its source.
        positions: source uid -> position, of the sources that have one.

    Raises:
        FinalOperationError: a source cannot go on, and waiting does not help.
        ConnectionFailedError: the external system of a source does not answer.
    """
    before = known_sources(directory)
    now: dict[str, dict[str, str]] = {}
    for vertex, source in sorted(sources.items()):
        uid = job.vertex(vertex).head.uid
        try:
            known = source.check_continuation(positions.get(uid), before.get(uid) or known_in(positions.get(uid)))
        except FlinkishError as error:
            error.where = "; ".join(part for part in (f"source uid {uid}", error.where) if part)
            raise
        if known:
            now[uid] = known
    if now != before:
        directory.write(Sources(now))
