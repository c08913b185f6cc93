"""The keyed state of a subtask that lies in files, as Python values: `StateFiles` has the same as bytes.

A group of rows is (state, namespace, key); namespace and key are encoded together, as one stored pickle. Look-ups take
many keys at once: a caller that knows the keys of a batch asks for all of them in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.runtime.state.files.references import FileSet
from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import TEXT_BEGINS, TEXT_PLACE, dumps_all, dumps_groups, dumps_joined, loads_all

if TYPE_CHECKING:
    import pyarrow as pa

    from flinkish.runtime.exchange.hashes import Hashes
    from flinkish.runtime.state.files.compaction import StateFiles
    from flinkish.runtime.state.files.directory import StateDirectory
    from flinkish.runtime.state.files.rows import Rows, RowsBuilder


class Missing:
    """The type of `MISSING`, which stands for a value that is absent (None may be a value)."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing()


class StoredMap(NamedTuple):
    """One map: user key -> (number in the order of insertion, value), and user key -> time of the last access (ms)."""

    entries: dict[Any, tuple[int, Any]]
    times: dict[Any, int]


#: About how many bytes an entry in memory takes besides its value, and how many times as much memory a value takes when
#: it is decoded.
ENTRY_BYTES, DECODED_FACTOR = 200, 3
#: How many bytes an entry in a file takes besides its encoded key and value: a hash and two offsets.
_FILED_ROW_BYTES = 16


class StoredState:
    """Reads and writes the values of one subtask in files, and holds the references to these files.

    Args:
        directory: where the files lie; None: no state ever lies in files.
        where: names the task in errors.
        classes: the classes of the program that state may hold.
    """

    def __init__(
        self, directory: StateDirectory | None = None, where: str = "", classes: ProgramClasses = NO_CLASSES
    ) -> None:
        self.directory = directory
        self.files = FileSet()
        #: returns how many bytes may be brought to memory at once
        self.whole_bytes: Callable[[], int] = int
        self._where = where
        self.classes = classes
        self._state_files: StateFiles | None = None

    def __bool__(self) -> bool:
        """Whether any state lies in files."""
        return bool(self.files.base or self.files.deltas)

    @property
    def state_files(self) -> StateFiles:
        """Reads and writes the files; created at the first use."""
        if self._state_files is None:
            # numpy and Arrow are not imported by jobs whose state is small
            from flinkish.runtime.state.files.compaction import StateFiles

            assert self.directory is not None
            self._state_files = StateFiles(self.directory, self._same, self._same)
        return self._state_files

    def may_be_whole(self) -> bool:
        """Whether all state in files may be brought to memory at once."""
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
        """The value of each key (MISSING: there is none), and the time of its last access (ms; None: none is kept).
        ``namespaces``: one for all keys, or one for each."""
        from flinkish.runtime.exchange.hashes import group_hashes_in
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
    ) -> list[tuple[list[Any], list[int | None], int]]:
        """The elements of each key's list, the time of the last access to each, and how many of the elements have their
        index in the list as their place in files: all, or none if elements before them have expired and were dropped.
        ``namespaces``: as in `values`."""
        from flinkish.runtime.exchange.hashes import group_hashes_in

        hashes = group_hashes_in(state, namespaces, keys)
        groups = self.state_files.groups(self.files, state, hashes, self.ids(namespaces, keys))
        chunks = iter(self.decoded([data for group in groups for data in group.values]))
        result = []
        for group in groups:
            elements: list[Any] = []
            times: list[int | None] = []
            in_place = True
            for place, time in zip(group.orders, group.times):
                chunk = next(chunks)
                in_place = in_place and place == len(elements)
                elements.extend(chunk)
                times.extend(repeat(time, len(chunk)))
            result.append((elements, times, len(elements) if in_place else 0))
        return result

    def maps(self, state: str, namespace: Hashable, keys: Sequence[Any]) -> list[StoredMap]:
        """All entries of each key's map, in the order in which they were first put."""
        from flinkish.runtime.exchange.hashes import group_hashes

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
        """(number in the order of insertion, value, time of the last access) of one entry of a map; None: there is no
        such entry."""
        from flinkish.runtime.exchange.hashes import entry_hashes, group_hashes
        from flinkish.runtime.state.files.rows import NO_TIME

        found = self.state_files.lookup(
            self.files,
            state,
            group_hashes(state, namespace, [key]),
            self.ids([namespace], [key]),
            dumps_all([user_key], self.classes),
            entry_hashes([user_key]),
        )
        data = found.values[0]
        if data is None:
            return None
        time = int(found.times[0])
        return int(found.orders[0]), self.decoded([data])[0], None if time == NO_TIME else time

    def group_rows(self, state: str, namespace: Hashable, keys: Sequence[Any]) -> list[int]:
        """An upper bound of the rows of each group: hidden rows count, and those of other groups with its hash."""
        from flinkish.runtime.exchange.hashes import group_hashes

        return self.state_files.group_rows(self.files, group_hashes(state, namespace, keys))

    # ------------------------------------------------------------------------------------------------ all of it

    def batches(self) -> Iterator[Rows]:
        """All rows of all states, in batches. A group may continue in the next batch."""
        return self.state_files.scan(self.files) if self else iter(())

    def batches_of(self, state: str) -> Iterator[Rows]:
        """All rows of one state, in batches."""
        import numpy as np

        for rows in self.batches():
            at = np.flatnonzero(rows.state == rows.state_of(state))
            if len(at):
                yield rows if len(at) == len(rows) else rows.take(at)

    def all_values(self, state: str) -> Iterator[tuple[list[tuple[Hashable, Any]], list[Any], list[int | None]]]:
        """All values of one state, of a kind with one entry per key, in batches: the groups (namespace, key), their
        values, and the times of their last access (None: none is kept)."""
        from flinkish.runtime.state.files.rows import NO_TIME

        for rows in self.batches_of(state):
            times = [None if time == NO_TIME else time for time in rows.time.tolist()]
            yield self.decoded_groups(rows.id), self.decoded(rows.value.to_pylist()), times

    def groups_of(self, state: str) -> Iterator[tuple[int, Hashable, Any]]:
        """(hash, namespace, key) of all groups of a state in files, ordered by hash. A group may come several times."""
        for rows in self.batches_of(state):
            # a group has one row for each entry of a map or chunk of a list
            groups = [group for group, _ in groupby(zip(rows.hash.tolist(), rows.id.to_pylist(), strict=True))]
            decoded = self.decoded([data for _, data in groups])
            for (hash_, _), (namespace, key) in zip(groups, decoded, strict=True):
                yield hash_, namespace, key

    def write(self, rows: Rows, epoch: int) -> None:
        """Write the changes of an epoch as new files."""
        self.files = self.state_files.add(self.files, rows, epoch)

    def builder(self) -> RowsBuilder:
        """A new builder of rows for `write`."""
        from flinkish.runtime.state.files.rows import RowsBuilder

        return RowsBuilder()

    # ------------------------------------------------------------------------------------------------ bytes

    def ids(self, namespaces: Sequence[Hashable], keys: Sequence[Any]) -> list[bytes]:
        """The encoded (namespace, key) of each key. ``namespaces``: as in `values`."""
        return dumps_groups(namespaces, keys, self.classes)

    def decoded_groups(self, ids: Any) -> list[tuple[Hashable, Any]]:
        """The inverse of `ids`, for an Arrow column: (namespace, key) of each."""
        import pyarrow as pa
        import pyarrow.compute as pc

        begins, ends = TEXT_PLACE
        if pc.all(pc.equal(pc.binary_slice(ids, begins - len(TEXT_BEGINS) - 1, begins - 1), TEXT_BEGINS)).as_py():
            with suppress(pa.ArrowInvalid):
                texts = pc.binary_slice(ids, begins, ends).cast(pa.large_string()).to_pylist()
                return list(zip(repeat(VOID_NAMESPACE), texts))
        return self.decoded(ids.to_pylist())

    def groups(self, state: str, namespaces: Sequence[Hashable], keys: Sequence[Any]) -> tuple[Hashes, list[bytes]]:
        """The hashes and the encoded (namespace, key) of some groups of a state: the first columns of their rows."""
        from flinkish.runtime.exchange.hashes import group_hashes_in

        return group_hashes_in(state, namespaces, keys), self.ids(namespaces, keys)

    def encoded(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        """The encoded values, as an Arrow column."""
        import numpy as np
        import pyarrow as pa

        data, ends = dumps_joined(values, self.classes)
        offsets = np.zeros(len(ends) + 1, np.int64)
        offsets[1:] = ends
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)

    def decoded(self, stored: Sequence[bytes]) -> list[Any]:
        """The inverse of `encoded`."""
        return loads_all(stored, "state in a file", self._where, self.classes)

    # ------------------------------------------------------------------------------------------------ files

    def compact(self, epoch: int, now_ms: int, ttl_ms: dict[str, int]) -> None:
        """Compact the files, a bounded amount. ``ttl_ms``: state name -> time-to-live (ms), of the states whose expired
        values are dropped when their rows are rewritten."""
        from flinkish.runtime.state.files.compaction import Expiry

        expiry = Expiry(now_ms, ttl_ms) if ttl_ms else None
        self.files = self.state_files.compact(self.files, epoch, expiry=expiry)
