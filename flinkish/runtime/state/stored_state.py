"""What of a subtask's state lies in files, as values instead of bytes.

A group of rows is (state, namespace, key); namespace and key are encoded together, as one stored pickle. State in files
is found by look-ups of many keys at once: who knows the keys of a batch asks for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.files.references import FileSet
from flinkish.runtime.state.keyed_state_kinds import VOID_NAMESPACE
from flinkish.runtime.stored_pickle import TEXT_BEGINS, TEXT_PLACE, dumps_all, dumps_groups, dumps_joined, loads_all

if TYPE_CHECKING:
    import pyarrow as pa

    from flinkish.runtime.state.files.directory import StateDirectory
    from flinkish.runtime.state.files.hashes import Hashes
    from flinkish.runtime.state.files.rows import Rows, RowsBuilder
    from flinkish.runtime.state.files.state_files import StateFiles


class Missing:
    """Stands for a value that is not there."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing()


class StoredMap(NamedTuple):
    """The entries of one map: user key -> (place in the order of insertion, value); the times of their last access."""

    entries: dict[Any, tuple[int, Any]]
    times: dict[Any, int]


#: What an entry in memory takes besides its encoded value, which takes about three times as much when it is decoded.
ENTRY_BYTES, DECODED_FACTOR = 200, 3
#: What an entry in a file takes besides its encoded key and value: a hash and two offsets.
_FILED_ROW_BYTES = 16


class StoredState:
    """See the module. ``where`` names the task in errors. Without a directory nothing ever lies in files."""

    def __init__(
        self, directory: StateDirectory | None = None, where: str = "", classes: ProgramClasses = NO_CLASSES
    ) -> None:
        self.directory = directory
        self.files = FileSet()
        #: how much of it may be brought to memory at once
        self.whole_bytes: Callable[[], int] = int
        self._where = where
        self._classes = classes
        self._state_files: StateFiles | None = None

    def __bool__(self) -> bool:
        """Whether anything lies in files."""
        return bool(self.files.base or self.files.deltas)

    @property
    def state_files(self) -> StateFiles:
        """How the files are read and written."""
        if self._state_files is None:
            # numpy and Arrow are not imported by jobs whose state is small
            from flinkish.runtime.state.files.state_files import StateFiles

            assert self.directory is not None
            self._state_files = StateFiles(self.directory, self._same, self._same)
        return self._state_files

    def may_be_whole(self) -> bool:
        """Whether all of it may be brought to memory at once."""
        rows = self.files.rows
        encoded_bytes = self.files.size_bytes - rows * _FILED_ROW_BYTES
        return rows * ENTRY_BYTES + encoded_bytes * DECODED_FACTOR <= self.whole_bytes()

    def _same(self, left: bytes, right: bytes) -> bool:
        first, second = self.decoded([left, right])
        return bool(first == second)

    # ------------------------------------------------------------------------------------------------ looking up

    def values(
        self, state: str, namespaces: Sequence[Hashable], keys: Sequence[Any]
    ) -> tuple[list[Any], list[int | None]]:
        """The value of each key (MISSING: there is none), and the time of its last access where one is kept.
        ``namespaces``: one for all keys, or one for each."""
        from flinkish.runtime.state.files.hashes import group_hashes_in
        from flinkish.runtime.state.files.rows import NO_TIME

        hashes = group_hashes_in(state, namespaces, keys)
        found = self.state_files.lookup(self.files, state, hashes, self.ids(namespaces, keys))
        stored = [data for data in found.values if data is not None]
        decoded = iter(self.decoded(stored))
        values = [MISSING if data is None else next(decoded) for data in found.values]
        times = [None if time == NO_TIME else time for time in found.times.tolist()]
        return values, times

    def lists(
        self, state: str, namespaces: Sequence[Hashable], keys: Sequence[Any]
    ) -> list[tuple[list[Any], list[int | None]]]:
        """The elements of each key's list, and the time of the last access of each. ``namespaces``: as of `values`."""
        from flinkish.runtime.state.files.hashes import group_hashes_in

        hashes = group_hashes_in(state, namespaces, keys)
        groups = self.state_files.groups(self.files, state, hashes, self.ids(namespaces, keys))
        chunks = iter(self.decoded([data for group in groups for data in group.values]))
        result = []
        for group in groups:
            elements: list[Any] = []
            times: list[int | None] = []
            for time in group.times:
                chunk = next(chunks)
                elements.extend(chunk)
                times.extend(repeat(time, len(chunk)))
            result.append((elements, times))
        return result

    def maps(self, state: str, namespace: Hashable, keys: Sequence[Any]) -> list[StoredMap]:
        """All entries of each key's map, in the order in which they were put first."""
        from flinkish.runtime.state.files.hashes import group_hashes

        hashes = group_hashes(state, namespace, keys)
        groups = self.state_files.groups(self.files, state, hashes, self.ids([namespace], keys))
        user_keys = iter(self.decoded([entry for group in groups for entry in group.entries]))
        values = iter(self.decoded([data for group in groups for data in group.values]))
        result = []
        for group in groups:
            found = StoredMap({}, {})
            for order, time in zip(group.orders, group.times):
                user_key = next(user_keys)
                found.entries[user_key] = (order, next(values))
                if time is not None:
                    found.times[user_key] = time
            result.append(found)
        return result

    def map_entry(self, state: str, namespace: Hashable, key: Any, user_key: Any) -> tuple[int, Any, int | None] | None:
        """(place, value, time of the last access) of one entry of a map; None: it is not there."""
        from flinkish.runtime.state.files.hashes import entry_hashes, group_hashes
        from flinkish.runtime.state.files.rows import NO_TIME

        found = self.state_files.lookup(
            self.files,
            state,
            group_hashes(state, namespace, [key]),
            self.ids([namespace], [key]),
            dumps_all([user_key], self._classes),
            entry_hashes([user_key]),
        )
        data = found.values[0]
        if data is None:
            return None
        time = int(found.times[0])
        return int(found.orders[0]), self.decoded([data])[0], None if time == NO_TIME else time

    def group_rows(self, state: str, namespace: Hashable, keys: Sequence[Any]) -> list[int]:
        """How many rows each group has, at most: rows that are hidden count, and those of groups of the same hash."""
        from flinkish.runtime.state.files.hashes import group_hashes

        return self.state_files.group_rows(self.files, group_hashes(state, namespace, keys))

    # ------------------------------------------------------------------------------------------------ all of it

    def batches(self) -> Iterator[Rows]:
        """Everything that is there, in batches. A group may go on in the next batch."""
        return self.state_files.scan(self.files) if self else iter(())

    def _batches_of(self, state: str) -> Iterator[Rows]:
        """The rows of one state."""
        import numpy as np

        for rows in self.batches():
            at = np.flatnonzero(rows.state == rows.state_of(state))
            if len(at):
                yield rows if len(at) == len(rows) else rows.take(at)

    def all_values(self, state: str) -> Iterator[tuple[list[tuple[Hashable, Any]], list[Any], list[int | None]]]:
        """Everything that one state has, of a kind with one entry per key, in batches: the groups (namespace, key),
        their values, and the time of the last access of each where one is kept."""
        from flinkish.runtime.state.files.rows import NO_TIME

        for rows in self._batches_of(state):
            times = [None if time == NO_TIME else time for time in rows.time.tolist()]
            yield self._groups_of(rows.id), self.decoded(rows.value.to_pylist()), times

    def groups_of(self, state: str) -> Iterator[tuple[int, Hashable, Any]]:
        """(hash, namespace, key) of all that a state has in files, in the order of the hashes. A group may come several
        times, one after the other."""
        for rows in self._batches_of(state):
            # a group has one row for each entry of a map or chunk of a list
            groups = [group for group, _ in groupby(zip(rows.hash.tolist(), rows.id.to_pylist(), strict=True))]
            decoded = self.decoded([data for _, data in groups])
            for (hash_, _), (namespace, key) in zip(groups, decoded, strict=True):
                yield hash_, namespace, key

    def write(self, rows: Rows, epoch: int) -> None:
        """Write what has changed, as a file."""
        self.files = self.state_files.add(self.files, rows, epoch)

    def builder(self) -> RowsBuilder:
        """Takes in rows for `write`."""
        from flinkish.runtime.state.files.rows import RowsBuilder

        return RowsBuilder()

    # ------------------------------------------------------------------------------------------------ bytes

    def ids(self, namespaces: Sequence[Hashable], keys: Sequence[Any]) -> list[bytes]:
        """The encoded groups of some keys. ``namespaces``: as of `values`."""
        return dumps_groups(namespaces, keys, self._classes)

    def _groups_of(self, ids: Any) -> list[tuple[Hashable, Any]]:
        """The inverse of `ids`, for a column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        begins, ends = TEXT_PLACE
        if pc.all(pc.equal(pc.binary_slice(ids, begins - len(TEXT_BEGINS) - 1, begins - 1), TEXT_BEGINS)).as_py():
            with suppress(pa.ArrowInvalid):
                texts = pc.binary_slice(ids, begins, ends).cast(pa.large_string()).to_pylist()
                return list(zip(repeat(VOID_NAMESPACE), texts))
        return self.decoded(ids.to_pylist())

    def groups(self, state: str, namespaces: Sequence[Hashable], keys: Sequence[Any]) -> tuple[Hashes, list[bytes]]:
        """The hashes and the encoded form of some groups of a state, as rows begin with them."""
        from flinkish.runtime.state.files.hashes import group_hashes_in

        return group_hashes_in(state, namespaces, keys), self.ids(namespaces, keys)

    def encoded(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        """Each value encoded, as a column."""
        import numpy as np
        import pyarrow as pa

        data, ends = dumps_joined(values, self._classes)
        offsets = np.zeros(len(ends) + 1, np.int64)
        offsets[1:] = ends
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)

    def decoded(self, stored: Sequence[bytes]) -> list[Any]:
        """The inverse of `encoded`."""
        return loads_all(stored, "state in a file", self._where, self._classes)

    # ------------------------------------------------------------------------------------------------ files

    def compact(self, epoch: int, now_ms: int, ttl_ms: dict[str, int]) -> None:
        """Bring files together, a bounded amount. ``ttl_ms``: how long values live, of the states whose expired values
        go when they are met."""
        from flinkish.runtime.state.files.compaction import Expiry

        expiry = Expiry(now_ms, ttl_ms) if ttl_ms else None
        self.files = self.state_files.compact(self.files, epoch, expiry=expiry)
