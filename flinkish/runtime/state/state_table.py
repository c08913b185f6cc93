"""One named state of one subtask: the values in memory by namespace and key, and the keys that an epoch has changed.

The kind of the state says what a value is: the value itself (value, reducing), an accumulator (aggregating), a list
(list: `ListTable`) or the entries of a map (map: `MapTable`).

Two rules for callers:

* Before it reads the values of some keys, a caller calls ``fetch`` for them. Until the batch ends they are in the dict
  of the namespace, and a fetched key that is not in it has no value. A key that was not fetched may be in it or not.
* A caller that writes into a dict of a table marks the keys, because nothing else records a change. Handles of user
  code, and operators that may have ``on_error``, mark before they write (`undo_log.py`).

Hot loops therefore fetch, take the dict and mark once per batch::

    table.fetch(None, keys)
    values = table.namespace(None)
    for key, value in zip(keys, batch):
        values[key] = ...
    table.mark_all(None, keys)
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.state.stored_state import DECODED_FACTOR, ENTRY_BYTES, MISSING, StoredState

if TYPE_CHECKING:
    from flinkish.runtime.state.column_changes import ColumnChanges
    from flinkish.runtime.state.files.rows import RowsBuilder
    from flinkish.runtime.state.loans import EntryLoan, Loan


class Marks(set[Any]):
    """The keys of a namespace that were changed in an epoch. If it is ``whole``, all keys that have a value count as
    changed as well, and need not be added."""

    __slots__ = ("whole",)

    def __init__(self) -> None:
        self.whole = False


#: marks of which none is kept: every change is to be reported
NONE_MARKED = Marks()


def present(values: dict[Any, Any], wanted: set[Any]) -> tuple[list[Any], list[Any]]:
    """The wanted keys that have a value, and their values."""
    if 2 * len(wanted) > len(values):
        # to iterate over a dict is faster than to look up most of its keys
        there = [key for key in values if key in wanted]
    else:
        there = list(wanted)
        with suppress(KeyError):
            return there, list(map(values.__getitem__, there))
        there = [key for key in wanted if key in values]
    return there, list(map(values.__getitem__, there))


def spread(by_namespace: dict[Hashable, list[Any]]) -> tuple[list[Hashable], list[Any]]:
    """Flatten keys by namespace to (the namespace of each key, or a single one for all, the keys)."""
    if len(by_namespace) == 1:
        return list(by_namespace), next(iter(by_namespace.values()))
    namespaces = [namespace for namespace, keys in by_namespace.items() for _ in keys]
    return namespaces, [key for keys in by_namespace.values() for key in keys]


_Keys = dict[Hashable, set[Any]]
_IN_MEMORY = StoredState()

#: Once one part in so many of the entries in files was looked up, all are read: that costs less than further look-ups.
_LOOKED_UP_PART = 8


class InlineState(NamedTuple):
    """The part of a state that lies in no file, in its stored form: for each namespace parallel lists of keys and of
    values (`inline_values` of each kind of table says in which form), and the keys that were removed."""

    kind: str
    present: dict[Hashable, tuple[list[Any], list[Any]]]
    removed: dict[Hashable, list[Any]]


class StateTable:
    """Holds the values of one state that are in memory, loads others from files, and records which keys have changed.

    >>> t = StateTable("count", "value")
    >>> t.namespace(None)["user"] = 1; t.mark(None, "user"); t.changed_keys()
    {(None, 'user')}
    """

    def __init__(self, name: str, kind: str, stored: StoredState = _IN_MEMORY) -> None:
        self.name = name
        self.kind = kind
        #: the times of the last access of state with time-to-live; in files they are part of the rows of this table
        self.times: StateTable | None = None
        #: set if this is such a table of times: the table of the state that the times belong to
        self.timed: StateTable | None = None
        #: what the running call has in its hands of the void namespace (`loans.py`)
        self.loan: Loan | EntryLoan | None = None
        #: about the size of an encoded value, as last written to files
        self.encoded_bytes = 24
        self._stored = stored
        #: whether all values are in memory: no state lay in files when the table was created, or all of it was read
        #: since, and no value was evicted
        self._complete = not stored
        #: the number of keys that were looked up in files since values were last evicted
        self._looked_up = 0
        self._namespaces: dict[Hashable, dict[Any, Any]] = {}
        #: entries that were not used since the last `release`
        self._cold: dict[Hashable, dict[Any, Any]] = {}
        self._changed: dict[Hashable, Marks] = {}
        #: keys that were changed in earlier epochs and not written to files since
        self._unwritten: _Keys = {}
        #: keys that were changed in this epoch and written to files already
        self._spilled: _Keys = {}
        #: keys that are known to have no value
        self._absent: _Keys = {}
        #: namespaces that were created in this epoch and never stored, which are mostly windows
        self._begun: set[Hashable] = set()

    # ------------------------------------------------------------------------------------------------ reading

    def fetch(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        """Bring the values of these keys to the dict of the namespace, as far as there are any."""
        if self.timed is not None:
            self.timed.fetch(namespace, keys)
        elif not self._stored:
            return
        elif self._complete:
            self._mark_rest(namespace)
        elif missing := self._missing(namespace, keys):
            self._load({namespace: missing})

    def fetch_all(self, by_namespace: Mapping[Hashable, Iterable[Any]]) -> None:
        """``fetch`` for keys of many namespaces, with a single look-up in the files."""
        if self.timed is not None:
            self.timed.fetch_all(by_namespace)
        elif not self._stored:
            return
        elif self._complete:
            if len(by_namespace) == 1:
                self._mark_rest(*by_namespace)
        else:
            missing = {
                namespace: found
                for namespace, keys in by_namespace.items()
                if (found := self._missing(namespace, keys))
            }
            if missing:
                self._load(missing)

    def _missing(self, namespace: Hashable, keys: Iterable[Any]) -> list[Any]:
        """The keys among these whose values must be read from files."""
        values = self.namespace(namespace)
        missing = set(keys).difference(values)
        if not missing:
            return []
        for known in (self._changed, self._unwritten, self._absent):
            if namespace in known:
                missing -= known[namespace]
        cold = self._cold.get(namespace)
        if cold:
            # intersection and difference_update would iterate over all of these dicts
            for key in [key for key in missing if key in cold]:
                values[key] = cold.pop(key)
                missing.remove(key)
        return list(missing)

    def _load(self, missing: dict[Hashable, list[Any]]) -> None:
        """Read the values of these keys, which are given by namespace, from files."""
        self._looked_up += sum(map(len, missing.values()))
        if self._looked_up * _LOOKED_UP_PART > self._stored.files.live_rows_at_most and self._stored.may_be_whole():
            self._load_all()
            return
        all_found, all_times = self._stored.values(self.name, *spread(missing))
        begin = 0
        for namespace, keys in missing.items():
            found, times = all_found[begin : begin + len(keys)], all_times[begin : begin + len(keys)]
            begin += len(keys)
            values, absent = self.namespace(namespace), self._absent.setdefault(namespace, set())
            for key, value in zip(keys, found):
                if value is MISSING:
                    absent.add(key)
                else:
                    values[key] = value
            if self.times is not None:
                of_keys = self.times.namespace(namespace)
                of_keys.update((key, time) for key, time in zip(keys, times) if time is not None)

    def _load_all(self) -> None:
        """Read all values in files. Values in memory, and keys known there to be removed, are newer and stay so."""
        newer = self._to_store()
        for namespace, cold in self._cold.items():
            self._take_older(namespace, newer, cold, {})
        self._cold = {}
        for groups, found, times in self._stored.all_values(self.name):
            namespaces, keys = zip(*groups)
            if namespaces.count(VOID_NAMESPACE) == len(namespaces):
                self._take_older(VOID_NAMESPACE, newer, dict(zip(keys, found)), dict(zip(keys, times)))
                continue
            by_namespace: dict[Hashable, tuple[dict[Any, Any], dict[Any, int | None]]] = {}
            for namespace, key, value, time in zip(namespaces, keys, found, times):
                older, of_older = by_namespace.setdefault(namespace, ({}, {}))
                older[key], of_older[key] = value, time
            for namespace, (older, of_older) in by_namespace.items():
                self._take_older(namespace, newer, older, of_older)
        self._complete = True

    def _take_older(
        self, namespace: Hashable, newer: _Keys, older: dict[Any, Any], times: dict[Any, int | None]
    ) -> None:
        """Add values from files to the dict of a namespace, except for keys of which newer values or removals are
        known."""
        values = self.namespace(namespace)
        for key in (older.keys() & values.keys()) | (older.keys() & newer.get(namespace, set())):
            del older[key]
        values.update(older)
        if self.times is not None:
            of_keys = self.times.namespace(namespace)
            of_keys.update((key, time) for key, time in times.items() if time is not None and key in older)

    @property
    def complete(self) -> bool:
        """Whether all values are in memory, so that no key needs to be fetched."""
        return self._complete or not self._stored

    def namespace(self, namespace: Hashable) -> dict[Any, Any]:
        """The live dict key -> value of a namespace, created if absent. It stays the same object at least until the end
        of the batch."""
        values = self._namespaces.get(namespace)
        if values is None:
            values = self._namespaces[namespace] = {}
            if self._complete and not any(
                namespace in known for known in (self._changed, self._unwritten, self._spilled)
            ):
                self._begun.add(namespace)
        return values

    def existing(self, namespace: Hashable) -> dict[Any, Any] | None:
        """The live dict of a namespace; None if there is none (one that exists may be empty)."""
        return self._namespaces.get(namespace)

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """All keys that have a value in a namespace now, in memory or in files, ordered by the hashes under which state
        lies in files. Changes to the state during the iteration do not affect it."""
        from flinkish.runtime.exchange.hashes import group_hashes

        newer = self._to_store().get(namespace, set())
        there = self.inline_keys(namespace, newer)
        in_memory = sorted(zip(group_hashes(self.name, namespace, there).tolist(), there), key=itemgetter(0))
        in_files = (
            (hash_, key) for hash_, of, key in self._stored.groups_of(self.name) if of == namespace and key not in newer
        )
        for _, same in groupby(heapq.merge(in_memory, in_files, key=itemgetter(0)), itemgetter(0)):
            yield from dict.fromkeys(key for _, key in same)

    def items(self) -> Iterator[tuple[Hashable, dict[Any, Any]]]:
        """(namespace, its live dict) of all namespaces that have values in memory."""
        return ((namespace, values) for namespace, values in list(self._namespaces.items()) if values)

    # ------------------------------------------------------------------------------------------------ writing

    def mark(self, namespace: Hashable, key: Any) -> None:
        """Record that the value of a key was set, changed in place or removed."""
        marked = self._changed.get(namespace)
        if marked is None:
            marked = self._changed[namespace] = Marks()
        elif marked.whole and key in self._namespaces[namespace]:
            return
        marked.add(key)

    def marked(self) -> Marks:
        """The live set of the void namespace's keys that need not be marked again, for hot paths; always one object."""
        return self._changed.setdefault(VOID_NAMESPACE, Marks())

    def mark_all(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        """``mark`` for many keys, all of which have a value."""
        marked = self._changed.get(namespace)
        if marked is None:
            marked = self._changed[namespace] = Marks()
        if not marked.whole:
            marked.update(keys)

    def _mark_rest(self, namespace: Hashable) -> None:
        """Count all keys of a namespace as changed once most of them are marked and all are in memory: to mark key by
        key takes longer than to write the others. This holds until the changes are asked for. State that expires does
        not do it: a value is stored together with its time, which only a use of that value marks."""
        marked, values = self._changed.get(namespace), self._namespaces.get(namespace)
        whole = self.times is None and self.kind not in ("list", "map")
        if whole and marked and values and 2 * len(marked) > len(values):
            marked.whole = True

    def _name_changes(self) -> None:
        """Mark the keys that count as changed although nobody has marked them."""
        for namespace, marked in self._changed.items():
            if marked.whole:
                marked.update(self._namespaces.get(namespace, ()))
                marked.whole = False

    def mark_grown(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        """``mark_all`` for values that were at most appended to: of a list only the new elements are written."""
        self.mark_all(namespace, keys)

    def remove(self, namespace: Hashable, key: Any) -> None:
        """Remove the value of a key that was fetched; does nothing if there is none."""
        values = self._namespaces.get(namespace)
        if values is not None and key in values:
            self.mark(namespace, key)
            del values[key]
            # a key without a value counts as changed only if it is marked; one that was added and removed within the
            # epoch, in a namespace that was never stored, is no change
            if namespace in self._begun:
                self._changed[namespace].discard(key)
            else:
                self._changed[namespace].add(key)

    def remove_all(self, namespace: Hashable, keys: list[Any]) -> None:
        """``remove`` for many keys without duplicates."""
        values = self._namespaces.get(namespace)
        if not values:
            return
        if namespace is not VOID_NAMESPACE and len(values) == len(keys) and all(map(values.__contains__, keys)):
            self._end_namespace(namespace, keys)
            return
        for key in keys:
            self.remove(namespace, key)

    def _end_namespace(self, namespace: Hashable, keys: list[Any]) -> None:
        """Remove a namespace, of which these are all keys."""
        del self._namespaces[namespace]
        if namespace in self._begun:
            self._begun.discard(namespace)
            self._changed.pop(namespace, None)
            return
        marked = self._changed.get(namespace)
        if marked is not None:
            marked.whole = False
        self.mark_all(namespace, keys)

    @property
    def changed(self) -> bool:
        """Whether anything was marked since `forget_changes`."""
        return any(self._changed.values()) or any(self._spilled.values())

    def changed_keys(self) -> set[tuple[Hashable, Any]]:
        """{(namespace, key)} of all entries that count as changed since `forget_changes`."""
        self._name_changes()
        marked = (self._changed, self._spilled)
        return {(namespace, key) for changed in marked for namespace, keys in changed.items() for key in keys}

    def changed_columns(self, uid: str) -> Iterator[ColumnChanges]:
        """The changes that are not in `changed_keys`, but in columns. ``uid``: of the operator."""
        return iter(())

    def forget_changes(self) -> None:
        """End the epoch, whose changes are stored now, in files or with the task."""
        self._name_changes()
        if self._stored:
            for namespace, keys in self._changed.items():
                self._unwritten.setdefault(namespace, set()).update(keys)
        self._spilled, self._absent = {}, {}
        self._unmark()

    def _unmark(self) -> None:
        """Clear all marks; the set that `marked` returned stays in use."""
        marked = self._changed.get(VOID_NAMESPACE)
        self._changed = {}
        self._begun.clear()
        if marked is not None:
            marked.clear()
            self._changed[VOID_NAMESPACE] = marked

    # ------------------------------------------------------------------------------------------------ storing

    def _to_store(self) -> _Keys:
        """The keys whose values or removals lie in no file. Without files these are all keys."""
        if not self._stored:
            return {namespace: set(values) for namespace, values in self._namespaces.items()}
        self._name_changes()
        found = {namespace: set(keys) for namespace, keys in self._unwritten.items()}
        for namespace, keys in self._changed.items():
            found.setdefault(namespace, set()).update(keys)
        return found

    @property
    def to_store(self) -> int:
        """The number of entries that lie in no file."""
        if not self._stored:
            return sum(map(len, self._namespaces.values()))
        marked = sum(map(len, self._unwritten.values())) + sum(map(len, self._changed.values()))
        return marked + sum(len(self._namespaces.get(ns, ())) for ns, marks in self._changed.items() if marks.whole)

    def inline(self) -> InlineState | None:
        """The part of the state that lies in no file, with live values; None if there is none."""
        state = InlineState(self.kind, {}, {})
        if not self._stored:
            for namespace, values in self.items():
                state.present[namespace] = (list(values), self.inline_values(namespace, list(values)))
        else:
            for namespace, keys in self._to_store_with_times().items():
                there = self.inline_keys(namespace, keys)
                if there:
                    state.present[namespace] = (there, self.inline_values(namespace, there))
                if len(there) < len(keys):
                    state.removed[namespace] = list(keys.difference(there))
        return state if state.present or state.removed else None

    def inline_keys(self, namespace: Hashable, marked: Iterable[Any]) -> list[Any]:
        """The keys among these that have a value."""
        values = self._namespaces.get(namespace, {})
        return [key for key in marked if key in values]

    def inline_values(self, namespace: Hashable, keys: list[Any]) -> list[Any]:
        """The values of these keys in the form in which they are stored with the task."""
        values = self._namespaces[namespace]
        return [values[key] for key in keys]

    def take_inline(self, state: InlineState) -> None:
        """Add the state that `inline` returned."""
        for namespace, (keys, values) in state.present.items():
            self.take_inline_values(namespace, keys, values)
            self._unwritten.setdefault(namespace, set()).update(keys)
        for namespace, keys in state.removed.items():
            self._unwritten.setdefault(namespace, set()).update(keys)
        self._begun.clear()

    def take_inline_values(self, namespace: Hashable, keys: list[Any], values: list[Any]) -> None:
        """Add values in the form of `inline_values`."""
        self.namespace(namespace).update(zip(keys, values, strict=True))

    def write_to(self, builder: RowsBuilder, stored: StoredState) -> int:
        """Add rows for all values and removals that lie in no file to the builder; returns the number of rows. Once
        they are in a file, `written` is called."""
        namespaces: list[Hashable] = []
        keys: list[Any] = []
        values: list[Any] = []
        times: list[int | None] | None = None if self.times is None else []
        gone: list[tuple[Hashable, Any]] = []
        for namespace, marked in self._to_store_with_times().items():
            of_namespace = self._namespaces.get(namespace, {})
            there, found = present(of_namespace, marked)
            namespaces.extend([namespace] * len(there))
            keys.extend(there)
            values.extend(found)
            if times is not None and self.times is not None:
                times.extend(map(self.times.namespace(namespace).get, there))
            if len(there) < len(marked) and stored:
                gone.extend((namespace, key) for key in marked if key not in of_namespace)
        if keys:
            encoded = stored.encoded(values)
            self.encoded_bytes = encoded.nbytes // len(encoded)
            builder.put(self.name, *stored.groups(self.name, namespaces, keys), encoded, times=times)
        if gone:
            namespaces, keys = [namespace for namespace, _ in gone], [key for _, key in gone]
            builder.delete(self.name, *stored.groups(self.name, namespaces, keys))
        return len(values) + len(gone)

    def _to_store_with_times(self) -> _Keys:
        """`_to_store`, and the keys of which only the time of the last access has changed since it was written: a value
        and its time lie in one row, and are stored, written and evicted together."""
        found = self._to_store()
        if self.times is not None and self._stored:
            for namespace, keys in self.times._to_store().items():
                found.setdefault(namespace, set()).update(keys)
        return found

    def written(self) -> None:
        """Count all values as written: they lie in files now."""
        if self._cold:
            for namespace, keys in self._to_store().items():
                for key in self._cold.get(namespace, {}).keys() & keys:
                    del self._cold[namespace][key]
        self._unwritten = {}
        self._name_changes()
        for namespace, keys in self._changed.items():
            self._spilled.setdefault(namespace, set()).update(keys)
        self._unmark()

    # ------------------------------------------------------------------------------------------------ memory

    @property
    def namespaces(self) -> int:
        """The number of namespaces in memory, including empty ones."""
        return len(self._namespaces)

    @property
    def cached_bytes(self) -> int:
        """About how many bytes the values in memory take."""
        return (sum(map(len, self._namespaces.values())) + sum(map(len, self._cold.values()))) * self.entry_bytes

    @property
    def entry_bytes(self) -> int:
        """About how many bytes an entry takes in memory."""
        return ENTRY_BYTES + DECODED_FACTOR * self.encoded_bytes

    def release(self) -> None:
        """Evict values that lie in files and were not used since the last call. To be called only between batches,
        while nobody holds a dict of the table."""
        if not self._stored or not self._cold and sum(map(len, self._namespaces.values())) <= self.to_store:
            # no value can be evicted
            return
        to_store = self._to_store_with_times()
        self._complete, self._cold, self._looked_up = False, {}, 0
        kept: dict[Hashable, dict[Any, Any]] = {}
        for namespace, values in self._namespaces.items():
            marked = to_store.get(namespace, ())
            if marked:
                kept[namespace] = {key: values.pop(key) for key in marked if key in values}
            if values:
                self._cold[namespace] = values
        self._namespaces = kept
        self._absent = {}
        self._release_times(to_store)

    def _release_times(self, to_store: _Keys) -> None:
        """Evict the times of values that were evicted: both are read from the same rows."""
        if self.times is None:
            return
        self.times._complete = False
        for namespace, of_keys in self.times._namespaces.items():
            kept = to_store.get(namespace, set()) | set(self._cold.get(namespace, ()))
            for key in [key for key in of_keys if key not in kept]:
                del of_keys[key]

    def prune(self) -> None:
        """Remove empty namespaces. To be called only between epochs, while nobody holds their dicts."""
        empty = [ns for ns, values in self._namespaces.items() if not values and ns is not VOID_NAMESPACE]
        for namespace in empty:
            del self._namespaces[namespace]
