"""Reads the stored state of a subtask for savepoints and checkpoints: all entries of its keyed state as columns, and
with these its watermark and its operator state as rows of a savepoint.

The entries of keyed state come from two places: from the part that is stored with the task (`KeyedBody`), which is
newer, and from the files, whose rows count only if the entry has not been changed since. So no entry comes twice.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from flinkish.core.time import TimeDomain
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.state.files.directory import StateDirectory, state_directory
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.saved.operator_states import decode_operator_states
from flinkish.runtime.state.saved.restore import operator_state_rows
from flinkish.runtime.state.saved.texts import (
    SavepointColumns,
    SavepointRow,
    to_savepoint_columns,
    to_savepoint_row,
    watermark_row,
)
from flinkish.runtime.state.state_rows import TIMERS_PREFIX, StateColumns, StateRow
from flinkish.runtime.state.state_table import InlineState
from flinkish.runtime.state.stored_state import StoredState
from flinkish.runtime.state.timer_queue import NONE_TAKEN, StoredTimers
from flinkish.runtime.state.timers_in_files import TimersInFiles
from flinkish.runtime.state.ttl import TTL_PREFIX
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses

_Group = tuple[Hashable, Any]
#: (group, elements, the time of the last access of each)
_List = tuple[_Group, list[Any], list[int | None]]


def stored_columns(
    data: bytes | None, directory: StateDirectory | None, where: str = "", classes: ProgramClasses = NO_CLASSES
) -> Iterator[StateColumns]:
    """The entries of keyed state and the timers that `KeyedStateBackend.snapshot` has stored.

    Raises:
        CorruptStateError: the data, or a file, is not what was written; see `KeyedBody.decode` for other errors.
        MissingFileError: a file is missing.
    """
    body = KeyedBody.decode(data, where, classes)
    stored = StoredState(directory, where, classes)
    stored.files = body.files
    kinds = {name: state.kind for name, state in body.states.items()}
    yield from _Entries(body, stored, body.kinds | kinds).columns()
    yield from _timers(body, directory, where, classes)


class _Entries:
    """Iterates over the entries of all states of a subtask, newer entries of the task before older ones in files."""

    def __init__(self, body: KeyedBody, stored: StoredState, kinds: dict[str, str]) -> None:
        self._body = body
        self._stored = stored
        self._kinds = kinds
        #: state -> groups whose rows in files do not count, because the task holds all of their entries
        self._replaced: dict[str, set[_Group]] = {}
        #: list state -> group -> the elements that follow those in files
        self._ends: dict[str, dict[_Group, list[Any]]] = {}
        #: map state -> group -> the user keys whose rows in files do not count
        self._newer: dict[str, dict[_Group, set[Any]]] = {}

    def columns(self) -> Iterator[StateColumns]:
        for name, state in self._body.states.items():
            inline = self._inline(name, state)
            if inline.keys:
                yield inline
        if self._stored:
            yield from self._in_files()
        # lists of which the task holds only the end, and whose beginning is not in files any more
        for name, ends in self._ends.items():
            if ends:
                yield self._lists(name, list(ends), list(ends.values()))

    @staticmethod
    def _lists(name: str, groups: list[_Group], lists: list[Any]) -> StateColumns:
        return StateColumns(name, "list", [ns for ns, _ in groups], [key for _, key in groups], lists)

    def _inline(self, name: str, state: InlineState) -> StateColumns:
        """The entries of one state that are stored with the task; notes which rows in files they replace."""
        found = StateColumns(name, state.kind, [], [], [])
        replaced = self._replaced[name] = set()
        ends = self._ends[name] = {}
        newer = self._newer[name] = {}
        for namespace, keys in state.removed.items():
            replaced.update((namespace, key) for key in keys)
        for namespace, (keys, values) in state.present.items():
            for key, value in zip(keys, values, strict=True):
                group = (namespace, key)
                if state.kind == "map":
                    cleared, entries, removed = value
                    pairs = [(user_key, one) for user_key, _, one in entries]
                    if cleared:
                        replaced.add(group)
                    else:
                        newer[group] = {*removed, *(user_key for user_key, _ in pairs)}
                    found.namespaces.extend(repeat(namespace, len(pairs)))
                    found.keys.extend(repeat(key, len(pairs)))
                    found.values.extend(pairs)
                    continue
                if state.kind == "list":
                    start, value = value
                    if start:
                        ends[group] = value
                        continue
                replaced.add(group)
                found.namespaces.append(namespace)
                found.keys.append(key)
                found.values.append(value)
        return found

    # ------------------------------------------------------------------------------------------------ files

    def _in_files(self) -> Iterator[StateColumns]:
        import numpy as np

        from flinkish.runtime.state.files.rows import NO_TIME

        pending: dict[str, _Gathered] = {}
        for rows in self._stored.batches():
            groups = self._stored.decoded_groups(rows.id)
            values = self._stored.decoded(rows.value.to_pylist())
            for number, name in enumerate(rows.names):
                at = np.flatnonzero(rows.state == number)
                if not len(at):
                    continue
                kind = self._kinds[name]
                if kind == "map":
                    # in the order in which the entries were first put
                    at = at[np.argsort(rows.order[at], kind="stable")]
                places = at.tolist()
                some, found = groups, values
                if kind == "map" or len(places) < len(values):
                    some, found = [groups[place] for place in places], [values[place] for place in places]
                times = [None if time == NO_TIME else time for time in rows.time[at].tolist()]
                if kind == "map":
                    user_keys = self._stored.decoded([rows.entry[place].as_py() for place in places])
                    yield from self._maps(name, some, user_keys, found, times)
                elif kind == "list":
                    gathered = pending.setdefault(name, _Gathered())
                    yield from self._list(name, gathered.take(rows.hash[at].tolist(), some, found, times))
                else:
                    yield from self._values(name, kind, some, found, times)
        for name, gathered in pending.items():
            yield from self._list(name, gathered.rest())

    def _values(
        self, name: str, kind: str, groups: list[Any], values: list[Any], times: list[int | None]
    ) -> Iterator[StateColumns]:
        yield from self._times(name, "value", zip(groups, times, strict=True))
        if replaced := self._replaced.get(name):
            kept = [place for place, group in enumerate(groups) if group not in replaced]
            groups, values = [groups[place] for place in kept], [values[place] for place in kept]
        yield _columns(name, kind, groups, values)

    def _times(self, name: str, kind: str, timed: Iterable[tuple[_Group, Any]]) -> Iterator[StateColumns]:
        """The times of the last access, which are a state of their own in savepoints."""
        replaced = self._replaced.get(TTL_PREFIX + name, set()) | self._replaced.get(name, set())
        kept = [(group, time) for group, time in timed if time is not None and group not in replaced]
        if kept:
            yield _columns(TTL_PREFIX + name, kind, [group for group, _ in kept], [time for _, time in kept])

    def _maps(
        self, name: str, groups: list[Any], user_keys: list[Any], values: list[Any], times: list[int | None]
    ) -> Iterator[StateColumns]:
        replaced = self._replaced.get(name, set())
        newer = self._newer.get(name, {})
        kept = [
            place
            for place, group in enumerate(groups)
            if group not in replaced and user_keys[place] not in newer.get(group, ())
        ]
        yield _columns(name, "map", [groups[p] for p in kept], [(user_keys[p], values[p]) for p in kept])
        newer_times = self._newer.get(TTL_PREFIX + name, {})
        timed = [
            (groups[p], (user_keys[p], times[p]))
            for p in kept
            if times[p] is not None and user_keys[p] not in newer_times.get(groups[p], ())
        ]
        yield from self._times(name, "map", timed)

    def _list(self, name: str, found: list[_List]) -> Iterator[StateColumns]:
        replaced = self._replaced.get(name, set())
        ends, ends_of_times = self._ends.get(name, {}), self._ends.get(TTL_PREFIX + name, {})
        kept = [one for one in found if one[0] not in replaced]
        if kept:
            lists = [[*elements, *ends.pop(group, ())] for group, elements, _ in kept]
            yield self._lists(name, [group for group, _, _ in kept], lists)
        timed = [
            (group, [*times, *ends_of_times.pop(group, ())])
            for group, _, times in found
            if any(time is not None for time in times)
        ]
        yield from self._times(name, "list", timed)


class _Gathered:
    """Joins the chunks of lists, which come one after the other; the last lists of a batch of rows may continue in the
    next batch."""

    def __init__(self) -> None:
        self._hash: int | None = None
        self._lists: dict[_Group, tuple[list[Any], list[int | None]]] = {}

    def take(self, hashes: list[int], groups: list[Any], chunks: list[Any], times: list[int | None]) -> list[_List]:
        """Add chunks; returns the lists that are complete now."""
        complete: list[_List] = []
        for hash_, group, chunk, time in zip(hashes, groups, chunks, times, strict=True):
            if hash_ != self._hash:
                complete += self.rest()
                self._hash = hash_
            elements, of_elements = self._lists.setdefault(group, ([], []))
            elements.extend(chunk)
            of_elements.extend(repeat(time, len(chunk)))
        return complete

    def rest(self) -> list[_List]:
        """The remaining lists, which are complete when no more chunks follow."""
        lists, self._lists = self._lists, {}
        return [(group, *parts) for group, parts in lists.items()]


def _columns(name: str, kind: str, groups: list[Any], values: list[Any]) -> StateColumns:
    return StateColumns(name, kind, [namespace for namespace, _ in groups], [key for _, key in groups], values)


# ------------------------------------------------------------------------------------------------ timers


def _timers(
    body: KeyedBody, directory: StateDirectory | None, where: str, classes: ProgramClasses
) -> Iterator[StateColumns]:
    filed = TimersInFiles(directory, range, where, classes)
    filed.sets = body.timer_files
    for service, timers in body.timers.items():
        for domain in TimeDomain:
            state = TIMERS_PREFIX + service
            yield _timer_columns(state, domain, _of_runs(timers, domain))
            not_there = set(timers.deleted.get(domain.name, ())) | set(_of_runs(timers, domain))
            taken_ms = timers.taken_ms.get(domain.name, NONE_TAKEN)
            for batch in filed.batches(service, domain, taken_ms, not_there):
                yield _timer_columns(state, domain, batch)


def _of_runs(timers: StoredTimers, domain: TimeDomain) -> list[tuple[int, Hashable, Any]]:
    runs = timers.runs.get(domain.name, ())
    return [(timestamp_ms, namespace, key) for timestamp_ms, namespace, keys in runs for key in keys]


def _timer_columns(state: str, domain: TimeDomain, timers: list[tuple[int, Hashable, Any]]) -> StateColumns:
    namespaces, keys = [namespace for _, namespace, _ in timers], [key for _, _, key in timers]
    return StateColumns(state, domain.name, namespaces, keys, [timestamp_ms for timestamp_ms, _, _ in timers])


def stored_rows(
    data: bytes | None, directory: StateDirectory | None = None, where: str = "", classes: ProgramClasses = NO_CLASSES
) -> Iterator[StateRow]:
    """`stored_columns` entry by entry, as rows."""
    for found in stored_columns(data, directory, where, classes):
        yield from found.rows()


_LENGTH = struct.Struct("<Q")


class TaskBody(NamedTuple):
    """The stored state of one subtask without its header: its encoded keyed state and its encoded operator states;
    None: there are none.

    >>> TaskBody.decode(TaskBody(b"keyed", None).encode())
    TaskBody(keyed=b'keyed', operators=None)
    """

    keyed: bytes | None
    operators: bytes | None

    def encode(self) -> bytes | None:
        """Both parts as one binary value; None when both are None."""
        if self.keyed is None and self.operators is None:
            return None
        operators = self.operators or b""
        return b"".join((_LENGTH.pack(len(operators)), operators, self.keyed or b""))

    @staticmethod
    def decode(data: bytes | None) -> TaskBody:
        """The inverse of `encode`."""
        if not data:
            return TaskBody(None, None)
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        return TaskBody(data[end:] or None, data[_LENGTH.size : end] or None)


_BATCH_ROWS = 10_000


def rows_of_task(
    data: bytes, body: bytes | None, state: str, classes: ProgramClasses = NO_CLASSES
) -> Iterator[SavepointColumns]:
    """The rows of a savepoint from a stored task, of its watermark, keyed state and operator state, in batches of one
    state each.

    Args:
        data: the encoded header of the task.
        body: the encoded state of the task (`TaskBody`).
        state: the directory with the files of state of the job; "": there are none.
        classes: the classes of the program that state may hold.
    """
    header = TaskHeader.decode(data, "", classes)
    for (namespace, key), watermark_ms in header.event_times().items():
        yield _columns_of(watermark_row(header.uid, namespace, key, watermark_ms))
    stored = TaskBody.decode(body)
    where = f"uid {header.uid}, subtask {header.subtask}"
    directory = StateDirectory(state_directory(state, header.vertex, header.subtask)) if state else None
    for found in stored_columns(stored.keyed, directory, where, classes):
        for start in range(0, len(found.keys), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            some = StateColumns(found.state, found.kind, found.namespaces[part], found.keys[part], found.values[part])
            yield to_savepoint_columns(header.uid, some, classes)
    for uid, of_operator in decode_operator_states(stored.operators, directory, where, classes).items():
        for row in operator_state_rows(header.subtask, header.parallelism, of_operator):
            yield _columns_of(to_savepoint_row(uid, row, classes))


def _columns_of(row: SavepointRow) -> SavepointColumns:
    return SavepointColumns(*row[:3], *([text] for text in row[3:]))
