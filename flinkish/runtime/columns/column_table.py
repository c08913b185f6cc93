"""The state of aggregations: a ValueState of ROW type by key and window, as a row operator would have it, but kept in
the arrays of the operator.

`ColumnTable` takes the place of the table of rows in the backend. What is changed is marked in the arrays; at the
barrier it is encoded by columns into the same files and the same form as rows are, or stored with the task, if it is
little. Rows that lie in files and were not changed since may leave the memory, and are read again.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.common.time import Time
from flinkish.common.typeinfo import RowTypeInfo
from flinkish.common.typeinfo.base import ListConverter
from flinkish.common.types import Row, _create_rows
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.state_ttl import StateTtlConfig
from flinkish.errors import InternalError
from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds, SomeKeys, columns_of_keys, grown
from flinkish.runtime.exchange.column_keys import keys_of_columns, raw_key_hashes
from flinkish.runtime.exchange.hashes import Hashes, group_hashes_of
from flinkish.runtime.job.operator import OperatorContext, StreamOperator
from flinkish.runtime.state.column_changes import ColumnChanges
from flinkish.runtime.state.files.rows import RowsBuilder
from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.state.state_table import InlineState, StateTable
from flinkish.runtime.state.stored_state import StoredState
from flinkish.runtime.state.ttl import TTL_PREFIX
from flinkish.runtime.stored.column_pickles import Column, dumps_columns, loads_columns, python_column

_LOG = logging.getLogger("flinkish.Aggregate")

#: The name of the state.
AGGREGATES = "aggregates"
#: About how many bytes of memory a row takes whose change lies in no file.
_ROW_BYTES = 64

#: The marks of a row: its last change lies in no file; it has changed in this epoch; it was there at an earlier
#: barrier; it lies in a file, in this form or in an earlier one.
UNFILED, CHANGED, STORED, FILED = 1, 2, 4, 8
_Marks = npt.NDArray[np.uint8]


class AggregatesTypeInfo(RowTypeInfo):
    """The type of the stored rows. A row that an earlier form of the query has written stays as it is until its key has
    new rows; then it is taken by the names of its fields (`ColumnTable.load`)."""

    def _convert(self, value: Any) -> Any:
        own = getattr(value, "_fields", None) if isinstance(value, Row) else None
        return super()._convert(value) if own is None or own == self._names else value

    def _list_converter(self) -> ListConverter:
        return lambda values: list(map(self._convert, values))


class RowsOfNamespace:
    """Rows of a namespace in memory. The slot of a row is the id of its key.

    Args:
        namespace: of all rows.
        ids: their keys.
        held: their values.
        in_order: whether the order of the slots is stored.
    """

    def __init__(self, namespace: Hashable, ids: KeyIds | SomeKeys, held: Accumulators, in_order: bool = False) -> None:
        self.namespace, self.ids, self.held, self.in_order = namespace, ids, held, in_order
        self.marks: _Marks = np.zeros(ROOM, np.uint8)
        #: which slots have a row (None: all), and when it was written, if rows expire
        self.live: npt.NDArray[np.bool_] | None = None
        self.times: Ints | None = None

    @property
    def count(self) -> int:
        """The number of slots in use."""
        return self.ids.count

    def namespaces(self, slots: Ints) -> list[Any]:
        """The namespace of each row, or the one of all."""
        return [self.namespace]

    def keys(self, slots: Ints) -> list[pa.Array]:
        """The columns of the keys of these rows."""
        return self.ids.columns(slots)

    def grow(self) -> None:
        """Make room for all slots."""
        self.held.grow(self.count)
        self.marks = grown(self.marks, self.count)

    def change(self, slots: Ints) -> None:
        """Mark rows that were changed or removed."""
        self.marks[slots] |= UNFILED | CHANGED

    def marked(self, mark: int) -> Ints:
        """The slots that have one of these marks."""
        return np.flatnonzero(self.marks[: self.count] & mark)

    def present(self, slots: Ints) -> Ints:
        """Those of these slots that have a row."""
        return slots if self.live is None else slots[self.live[slots]]

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory they take."""
        return self.ids.nbytes + self.held.nbytes + len(self.marks)


class RemovedRows(NamedTuple):
    """Rows that were removed together: the namespace of each, or the one of all, their keys, and their marks."""

    namespaces: list[Any]
    keys: list[pa.Array]
    marks: _Marks

    def marked(self, marks: int) -> RemovedRows:
        """Those that have all of these marks."""
        at = np.flatnonzero(self.marks & marks == marks)
        namespaces = self.namespaces if len(self.namespaces) < 2 else [self.namespaces[place] for place in at.tolist()]
        return RemovedRows(namespaces, [key.take(pa.array(at)) for key in self.keys], self.marks[at])


class Filed(NamedTuple):
    """Rows in files, by columns: the namespace of each, the keys, the values, and when they were written."""

    namespaces: list[Any]
    keys: list[pa.Array]
    values: list[Column]
    times: Ints

    def parts(self) -> Iterator[tuple[Any, Filed]]:
        """The rows of each namespace."""
        begin = 0
        for namespace, run in groupby(self.namespaces):
            of_it = list(run)
            part = slice(begin, begin + len(of_it))
            columns = [key[part] for key in self.keys], [value[part] for value in self.values]
            yield namespace, Filed(of_it, *columns, self.times[part])
            begin = part.stop


#: Values in Python's form: of a namespace the keys, their rows, and when they were written.
OfNamespace = tuple[list[Any], list[Any], list[Any]]


class ColumnOperator(StreamOperator):
    """The base of operators that keep aggregates in a `ColumnTable`."""

    table: ColumnTable
    #: the types of the columns of the key
    types: list[pa.DataType]
    #: whether namespaces are windows, from a time to another one
    bounded = False
    _began = False

    def begin_epoch(self) -> None:
        if not self._began:
            self._began = True
            self.bring()

    @abstractmethod
    def bring(self) -> None:
        """Begin with what was stored."""

    @property
    @abstractmethod
    def kept(self) -> Iterable[RowsOfNamespace]:
        """All rows in memory."""

    @property
    @abstractmethod
    def cached_bytes(self) -> int:
        """About how many bytes of memory they take."""

    @abstractmethod
    def release(self) -> None:
        """Drop what lies in files and was not used since the last call."""


class ColumnTable(StateTable):
    """The state of one operator.

    Args:
        operator: has the rows.
        context: of the operator.
        held: accumulators of the operator, which say what the fields of a row are.
        ttl_ms: for how long rows are kept without being written; 0: for ever.
    """

    def __init__(self, operator: ColumnOperator, context: OperatorContext, held: Accumulators, ttl_ms: int = 0) -> None:
        if context.keyed_state is None:
            raise InternalError("an aggregation has no keyed state", where=f"operator {context.uid!r}")
        self.backend = context.keyed_state
        super().__init__(AGGREGATES, "value", self.backend.stored)
        self._operator, self._types = operator, [field.type for field in held.fields]
        self._names = [field.name for field in held.fields]
        self._where = f"operator '{context.name}' (uid {context.uid})"
        descriptor = ValueStateDescriptor(AGGREGATES, AggregatesTypeInfo(self._types, self._names))
        if ttl_ms:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).build())
            self.times = _Times(self)
        self.backend.partitioned_state(descriptor)
        #: the rows that were removed with all of their namespace, as far as that is to be stored
        self._gone: list[RemovedRows] = []
        #: marks of rows that cannot leave the memory
        self.pinned = UNFILED | CHANGED if self.backend.recording else UNFILED
        #: the fields of rows that were read, in their order
        self._read: set[tuple[str, ...]] = set()

    # ------------------------------------------------------------------------------------------------ reading

    def take_over(self) -> tuple[dict[Hashable, OfNamespace], dict[Hashable, list[Any]]]:
        """Take the place of the table of rows. Returns what it had that lies in no file: values, and the keys that were
        removed, by namespace."""
        rows, found, removed = self.backend.table(AGGREGATES, "value"), {}, {}
        for namespace, marked in rows._to_store_with_times().items():
            values, times = rows.namespace(namespace), {}
            if rows.times is not None:
                times = rows.times.namespace(namespace)
            keys = [key for key in values if key in marked]
            found[namespace] = keys, [values[key] for key in keys], [times.get(key) for key in keys]
            if self._stored and len(keys) < len(marked):
                removed[namespace] = list(marked.difference(keys))
        self.backend.install(self)
        return found, removed

    @property
    def inline_marks(self) -> int:
        """The marks of rows that `take_over` has returned: whether others lie in files is not known."""
        return UNFILED | STORED | FILED if self._stored else UNFILED | STORED

    @property
    def in_files(self) -> bool:
        """Whether any rows lie in files."""
        return bool(self._stored)

    @property
    def may_be_whole(self) -> bool:
        """Whether all rows in files may be brought to memory."""
        return self._stored.may_be_whole()

    @property
    def rows_in_files(self) -> int:
        """At least as many as rows lie in files."""
        return self._stored.files.live_rows_at_most

    def find(self, keys: list[pa.Array], count: int) -> tuple[Ints, list[Column], Ints]:
        """The places of the keys that have a row of the void namespace in files, their values, and their times."""
        hashes, ids = self._encoded_groups([VOID_NAMESPACE], keys, count)
        found = self._stored.state_files.lookup(self._stored.files, self.name, hashes, ids)
        there = np.flatnonzero(np.array([value is not None for value in found.values], bool))
        stored = pa.array([found.values[place] for place in there.tolist()], pa.large_binary())
        return there, self._decoded_rows(stored), found.times[there]

    def namespaces_in_files(self) -> Iterable[Hashable]:
        """The namespaces of which rows lie in files."""
        found = dict[Hashable, None]()
        for rows in self._stored.batches_of(self.name):
            spaces, _ = self._decoded_groups(rows.id)
            found.update(dict.fromkeys(self._namespaces_of(np.unique(spaces, axis=0))))
        return found

    def _namespaces_of(self, spaces: Ints) -> list[Hashable]:
        return list(map(tuple, spaces.tolist())) if self._operator.bounded else [VOID_NAMESPACE] * len(spaces)

    def scan(self, namespaces: Collection[Any] | None = None) -> Filed:
        """The rows of these namespaces (None: of all) that lie in files, by namespace, in the order in which the keys
        of each first came."""
        wanted = None if namespaces is None or not self._operator.bounded else [start for start, _ in namespaces]
        parts: list[tuple[Any, ...]] = []
        for rows in self._stored.batches_of(self.name):
            spaces, keys = self._decoded_groups(rows.id)
            at = np.arange(len(rows)) if wanted is None else np.flatnonzero(np.isin(spaces[:, 0], wanted))
            if len(at):
                taken = pa.array(at)
                keys, values = [key.take(taken) for key in keys], self._decoded_rows(rows.value.take(taken))
                parts.append((spaces[at], keys, values, rows.time[at], rows.order[at]))
        if not parts:
            return Filed([], [], [], np.zeros(0, np.int64))
        spaces, times, orders = (np.concatenate([part[place] for part in parts]) for place in (0, 3, 4))
        order = np.lexsort((orders, spaces[:, 1], spaces[:, 0]))
        keys, values = ([picked(_joined(one), order) for one in zip(*(part[n] for part in parts))] for n in (1, 2))
        return Filed(self._namespaces_of(spaces[order]), keys, values, times[order])

    def _decoded_groups(self, ids: pa.Array) -> tuple[Ints, list[pa.Array]]:
        """The bounds of the namespaces (0, 0 of the void one), and the columns of the keys."""
        types, bounds = self._operator.types, 2 * self._operator.bounded
        made, classes = self._group_of(VOID_NAMESPACE, bounds), self._stored.classes
        found = loads_columns(made, bounds + len(types), ids, classes)
        if found is not None and not any(column.null_count for column in found[:bounds]):
            spaces = np.zeros((len(ids), 2), np.int64)
            for place, column in enumerate(found[:bounds]):
                spaces[:, place] = column.to_numpy()
            return spaces, [column.cast(of) for column, of in zip(found[bounds:], types, strict=True)]
        groups = self._stored.decoded_groups(ids)
        spaces = np.array([namespace if bounds else (0, 0) for namespace, _ in groups], np.int64).reshape(-1, 2)
        return spaces, columns_of_keys([key for _, key in groups], types)

    def _decoded_rows(self, stored: pa.Array) -> list[Column]:
        """The values of the fields of rows."""
        if not len(stored):
            return [[] for _ in self._names]
        found = loads_columns(self._row, len(self._names), stored, self._stored.classes)
        return self.columns_of(self._stored.decoded(stored.to_pylist())) if found is None else [*found]

    def columns_of(self, rows: list[Row]) -> list[Column]:
        """The values of the fields of rows, which another form of the query may have written."""
        columns: list[list[Any]] = [[] for _ in self._names]
        for row in rows:
            # a Row without fields has no names
            names = tuple(row._fields) if len(row) else ()
            if names not in self._read:
                self._compare(names)
            values = row if list(names) == self._names else map(row.as_dict().get, self._names)
            for column, value in zip(columns, values):
                column.append(value)
        return [*columns]

    def _compare(self, names: tuple[str, ...]) -> None:
        """Say once what the query has that stored rows have not, and the other way round."""
        self._read.add(names)
        new, gone = set(self._names).difference(names), set(names).difference(self._names)
        if new:
            _LOG.warning("%s: stored aggregates have no %s, which begins at nothing", self._where, _listed(new))
        if gone:
            _LOG.warning("%s: stored aggregates have %s, which is dropped", self._where, _listed(gone))

    def fetch(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        """Rows are read by the operator."""

    def fetch_all(self, by_namespace: Any) -> None:
        """Rows are read by the operator."""

    # ------------------------------------------------------------------------------------------------ changes

    def drop(self, namespaces: list[Any], keys: list[pa.Array], marks: _Marks) -> None:
        """Note that rows are no more, which were stored and which the operator forgets."""
        if len(marks):
            self._gone.append(RemovedRows(namespaces, keys, marks | np.uint8(UNFILED | CHANGED)))

    @property
    def changed(self) -> bool:
        marked = any((rows.marks[: rows.count] & CHANGED).any() for rows in self._operator.kept)
        return marked or any((gone.marks & CHANGED).any() for gone in self._gone)

    def changed_columns(self, uid: str) -> Iterator[ColumnChanges]:
        for rows in self._operator.kept:
            there = rows.present(rows.marked(CHANGED))
            if len(there):
                place = rows.namespaces(there), self._names, rows.keys(there)
                yield ColumnChanges(uid, self.name, *place, rows.held.stored(there), len(there))
                if self.times is not None and rows.times is not None:
                    times: list[Column] = [pa.array(rows.times[there])]
                    yield ColumnChanges(uid, self.times.name, place[0], None, place[2], times, len(there))
        for gone in self._removed(CHANGED):
            for table in (self, self.times):
                if table is not None:
                    yield ColumnChanges(uid, table.name, gone.namespaces, None, gone.keys, [], len(gone.marks))

    def _removed(self, marks: int) -> Iterator[RemovedRows]:
        """The rows that were removed and have all of these marks."""
        of_kept = []
        for rows in self._operator.kept:
            if rows.live is not None:
                slots = rows.marked(UNFILED | CHANGED)
                slots = slots[~rows.live[slots]]
                of_kept.append(RemovedRows(rows.namespaces(slots), rows.keys(slots), rows.marks[slots]))
        return (found for gone in (*of_kept, *self._gone) if len((found := gone.marked(marks)).marks))

    @staticmethod
    def _groups(namespaces: list[Any], keys: list[pa.Array], count: int) -> Iterator[tuple[Hashable, Any]]:
        of_all = namespaces if len(namespaces) > 1 else repeat(namespaces[0] if namespaces else None, count)
        return zip(of_all, keys_of_columns(keys, count))

    def forget_changes(self) -> None:
        for rows in self._operator.kept:
            marks = rows.marks[: rows.count]
            marks &= UNFILED | FILED
            if rows.live is not None:
                # of rows that were never written nothing is left
                marks[~rows.live[: rows.count] & (marks & FILED == 0)] = 0
            marks[marks != 0] |= STORED
        pending = [gone for gone in self._gone if self._stored and (gone.marks & UNFILED).any()]
        self._gone = [gone._replace(marks=gone.marks & np.uint8(UNFILED | FILED)) for gone in pending]

    # ------------------------------------------------------------------------------------------------ storing

    @property
    def to_store(self) -> int:
        marked = sum(int(np.count_nonzero(rows.marks[: rows.count] & UNFILED)) for rows in self._operator.kept)
        return marked + sum(len(gone.marks) for gone in self._gone)

    def inline(self) -> InlineState | None:
        return self._inline_part(1)

    def _inline_part(self, part: int) -> InlineState | None:
        """What lies in no file. ``part``: 1 for the rows, 2 for their times."""
        state = InlineState(self.kind, {}, {})
        for rows in self._operator.kept:
            for namespace, found in self._in_python(rows, rows.present(rows.marked(UNFILED))).items():
                keys, values = state.present.setdefault(namespace, ([], []))
                keys += found[0]
                values += found[part]
        for gone in self._removed(FILED | UNFILED):
            for namespace, key in self._groups(gone.namespaces, gone.keys, len(gone.marks)):
                state.removed.setdefault(namespace, []).append(key)
        return state if state.present or state.removed else None

    def _in_python(self, rows: RowsOfNamespace, slots: Ints) -> dict[Hashable, OfNamespace]:
        """Rows in Python's form, by namespace."""
        if not len(slots):
            return {}
        columns = [python_column(column) for column in rows.held.stored(slots)]
        keys = keys_of_columns(rows.keys(slots), len(slots))
        made = _create_rows(self._names, zip(*columns, strict=True) if columns else [()] * len(keys))
        times = [None] * len(keys) if rows.times is None else rows.times[slots].tolist()
        namespaces = rows.namespaces(slots)
        if len(namespaces) == 1:
            return {namespaces[0]: (keys, made, times)}
        found: dict[Hashable, OfNamespace] = {}
        for namespace, *entry in zip(namespaces, keys, made, times, strict=True):
            for values, value in zip(found.setdefault(namespace, ([], [], [])), entry, strict=True):
                values.append(value)
        return found

    def write_to(self, builder: RowsBuilder, stored: StoredState) -> int:
        count = 0
        for rows in self._operator.kept:
            there = rows.present(rows.marked(UNFILED))
            if len(there):
                of_rows = self._encoded_groups(rows.namespaces(there), rows.keys(there), len(there))
                values = dumps_columns(self._row, rows.held.stored(there), len(there), stored.classes)
                self.encoded_bytes = values.nbytes // len(values)
                times = None if rows.times is None else rows.times[there]
                builder.put(self.name, *of_rows, values, orders=there if rows.in_order else None, times=times)
                count += len(there)
        for gone in self._removed(FILED | UNFILED):
            builder.delete(self.name, *self._encoded_groups(gone.namespaces, gone.keys, len(gone.marks)))
            count += len(gone.marks)
        return count

    def _row(self, values: Sequence[Any]) -> Any:
        return _create_rows(self._names, [values])[0]

    def _encoded_groups(
        self, namespaces: list[Any], keys: list[pa.Array], count: int
    ) -> tuple[Hashes, pa.LargeBinaryArray]:
        """`StoredState.groups` by columns."""
        names = [str(place) for place in range(len(keys))]
        raw = raw_key_hashes(pa.RecordBatch.from_arrays(keys, names), names) if keys else _hash_of_nothing(count)
        hashes = group_hashes_of(self.name, namespaces, raw)
        (namespace, *others), columns = namespaces, list[Column](keys)
        bounds = 2 if others else 0
        if others:
            # sessions, each with bounds of its own
            columns = [*(pa.array(bound, pa.int64()) for bound in zip(*namespaces)), *keys]

        made = self._group_of(namespace, bounds)
        return hashes, dumps_columns(made, columns, count, self._stored.classes)

    @staticmethod
    def _group_of(namespace: Hashable, bounds: int) -> Callable[[Sequence[Any]], Any]:
        """Makes (namespace, key) of the values of columns, the first ``bounds`` of which are the namespace."""

        def made(values: Sequence[Any]) -> Any:
            of_key = values[bounds:]
            return tuple(values[:2]) if bounds else namespace, of_key[0] if len(of_key) == 1 else tuple(of_key)

        return made

    def written(self) -> None:
        for rows in self._operator.kept:
            slots = rows.marked(UNFILED)
            rows.marks[slots] &= STORED | CHANGED
            rows.marks[rows.present(slots)] |= FILED
        self._gone = [one._replace(marks=one.marks & np.uint8(CHANGED)) for one in self._gone]

    def prune(self) -> None:
        """There are no namespaces to be forgotten."""

    # ------------------------------------------------------------------------------------------------ memory

    @property
    def cached_bytes(self) -> int:
        return self._operator.cached_bytes

    @property
    def entry_bytes(self) -> int:
        return _ROW_BYTES

    def release(self) -> None:
        self._operator.release()


class _Times(StateTable):
    """The times at which the rows of a table were written, which are stored together with them."""

    def __init__(self, table: ColumnTable) -> None:
        super().__init__(TTL_PREFIX + table.name, "value")
        self.timed = table
        self._table = table

    def inline(self) -> InlineState | None:
        return self._table._inline_part(2)

    @property
    def to_store(self) -> int:
        return 0


def _hash_of_nothing(count: int) -> Hashes:
    return raw_key_hashes(pa.RecordBatch.from_arrays([pa.nulls(count)], ["none"]), [])


def picked(column: Column, places: Ints) -> Column:
    """Some values of a column, in another order."""
    if isinstance(column, list):
        return [column[place] for place in places.tolist()]
    return column.take(pa.array(places))


def _joined(parts: Sequence[Column]) -> Column:
    """Columns as one."""
    types = {None if isinstance(part, list) else part.type for part in parts}
    if len(types) == 1 and None not in types:
        return pa.concat_arrays(parts)
    return [value for part in parts for value in python_column(part)]


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
