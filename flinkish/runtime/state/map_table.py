"""Map state: each entry is a row of its own, so that reading or writing one touches no other.

Rule: entries are iterated in the order in which they were first put, no matter which of them are in memory, in files or
compacted. Each entry has a number for this (``sequence`` returns the next one): an entry that is put again keeps its
number, and one that was removed before gets a new one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import StoredState

if TYPE_CHECKING:
    from flinkish.runtime.state.files.rows import RowsBuilder

#: Maps of at most so many rows in files are read as a whole.
FEW_ENTRIES = 256

#: (number in the order of insertion, value)
_Entry = tuple[int, Any]


class MapEntries:
    """The entries of one map that are in memory."""

    __slots__ = ("absent", "ascending", "cleared", "complete", "entries", "unwritten")

    def __init__(self, complete: bool, cleared: bool = False) -> None:
        self.entries: dict[Any, _Entry] = {}
        #: whether all entries are in memory, in their order
        self.complete = complete
        #: whether files may hold older entries that do not count any more
        self.cleared = cleared
        #: user keys that were put or removed since the map was last written to files
        self.unwritten: set[Any] = set()
        #: user keys that are known to have no entry
        self.absent: set[Any] = set()
        #: all user keys in ascending order; None until they are first asked for in this order
        self.ascending: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def pairs(self) -> dict[Any, Any]:
        """User key -> value, of the entries in memory."""
        return {user_key: value for user_key, (_, value) in self.entries.items()}


class MapTable(StateTable):
    """A table whose values are `MapEntries`; a key whose map has no entries has no value."""

    def __init__(self, name: str, kind: str, stored: StoredState, sequence: Callable[[], int]) -> None:
        super().__init__(name, kind, stored)
        self._sequence = sequence
        #: (namespace, key) -> user keys whose entries this epoch has put or removed
        self._changed_entries: dict[tuple[Hashable, Any], set[Any]] = {}
        #: (namespace, key) of maps that this epoch has removed, or changed by `mark` as a whole
        self._changed_wholly: set[tuple[Hashable, Any]] = set()

    # ------------------------------------------------------------------------------------------------ reading

    def _load(self, missing: dict[Hashable, list[Any]]) -> None:
        for namespace, keys in missing.items():
            self._load_maps(namespace, keys)

    def _load_maps(self, namespace: Hashable, keys: list[Any]) -> None:
        values, absent = self.namespace(namespace), self._absent.setdefault(namespace, set())
        counts = self._stored.group_rows(self.name, namespace, keys)
        few = []
        for key, count in zip(keys, counts):
            if not count:
                absent.add(key)
            elif count <= FEW_ENTRIES:
                few.append(key)
            else:
                values[key] = MapEntries(complete=False)
        for key, found in zip(few, self._stored.maps(self.name, namespace, few) if few else ()):
            if not found.entries:
                absent.add(key)
                continue
            entries = values[key] = MapEntries(complete=True)
            entries.entries = found.entries
            self._take_times(namespace, key, found.times)

    def _take_times(self, namespace: Hashable, key: Any, times: dict[Any, int]) -> None:
        if isinstance(self.times, MapTable) and times:
            of_key = self.times.made(namespace, key)
            for user_key, time in times.items():
                of_key.entries.setdefault(user_key, (0, time))

    def of(self, namespace: Hashable, key: Any) -> MapEntries | None:
        """The map of a key, whose entries need not all be in memory; None: it has no entries."""
        if self.timed is None and (in_memory := self.namespace(namespace).get(key)) is not None:
            return in_memory  # type: ignore[no-any-return]
        self.fetch(namespace, (key,))
        entries: MapEntries | None = self.namespace(namespace).get(key)
        return entries

    def entry(self, namespace: Hashable, key: Any, user_key: Any) -> _Entry | None:
        """(number in the order of insertion, value) of one entry, read from files if needed; None: there is none."""
        found = self.of(namespace, key)
        return None if found is None else self._entry(found, namespace, key, user_key)

    def _entry(self, found: MapEntries, namespace: Hashable, key: Any, user_key: Any) -> _Entry | None:
        entry = found.entries.get(user_key)
        if entry is not None or found.complete or self.timed is not None:
            return entry
        if user_key in found.unwritten or user_key in found.absent:
            return None
        stored = self._stored.map_entry(self.name, namespace, key, user_key)
        if stored is None:
            found.absent.add(user_key)
            return None
        order, value, time = stored
        entry = found.entries[user_key] = (order, value)
        if time is not None:
            self._take_times(namespace, key, {user_key: time})
        return entry

    def whole(self, namespace: Hashable, key: Any) -> MapEntries | None:
        """The map of a key with all of its entries in memory, in their order; None: it has no entries."""
        found = self.of(namespace, key)
        if found is None:
            return None
        if not found.complete and self.timed is None:
            stored = self._stored.maps(self.name, namespace, [key])[0]
            rest = {k: entry for k, entry in stored.entries.items() if k not in found.unwritten}
            both = {**rest, **found.entries}
            found.entries = dict(sorted(both.items(), key=lambda item: item[1][0]))
            found.complete = True
            self._take_times(namespace, key, {k: time for k, time in stored.times.items() if k in rest})
        return found if found.entries else None

    def between(self, namespace: Hashable, key: Any, first: Any, last: Any) -> list[tuple[Any, Any]]:
        """(user key, value) of the entries with ``first`` <= user key <= ``last``, in ascending order. Once the map is
        in memory, the other entries are not looked at."""
        found = self.whole(namespace, key)
        if found is None:
            return []
        user_keys, entries = self._ascending(found), found.entries
        begin = bisect_left(user_keys, first)
        end = bisect_right(user_keys, last, begin)
        return [(user_key, entries[user_key][1]) for user_key in user_keys[begin:end]]

    @staticmethod
    def _ascending(found: MapEntries) -> list[Any]:
        if found.ascending is None:
            found.ascending = sorted(found.entries)
        return found.ascending

    # ------------------------------------------------------------------------------------------------ writing

    def made(self, namespace: Hashable, key: Any) -> MapEntries:
        """The map of a key, created if it has no entries."""
        found = self.of(namespace, key)
        if found is None:
            removed = any(key in marked.get(namespace, ()) for marked in (self._changed, self._unwritten))
            found = self.namespace(namespace)[key] = MapEntries(complete=True, cleared=removed)
        return found

    def put(self, namespace: Hashable, key: Any, pairs: dict[Any, Any]) -> None:
        """Put entries (user key -> value) into the map of a key."""
        found = self.made(namespace, key)
        for user_key, value in pairs.items():
            entry = self._entry(found, namespace, key, user_key)
            if entry is None and found.ascending is not None:
                insort(found.ascending, user_key)
            found.entries[user_key] = (self._sequence() if entry is None else entry[0], value)
            found.unwritten.add(user_key)
        self._mark_entries(namespace, key, pairs)

    def entry_in_memory(self, namespace: Hashable, key: Any, user_key: Any) -> Any:
        """The value of an entry that is in memory; None: there is none."""
        found: MapEntries | None = self._namespaces.get(namespace, {}).get(key)
        entry = None if found is None else found.entries.get(user_key)
        return None if entry is None else entry[1]

    def replace(self, namespace: Hashable, key: Any, user_key: Any, value: Any) -> None:
        """Replace the value of an entry that the running call has put."""
        entries: dict[Any, _Entry] = self._namespaces[namespace][key].entries
        entries[user_key] = (entries[user_key][0], value)

    def put_changed(self, namespace: Hashable, key: Any, changed: dict[Any, Any]) -> None:
        """Set the values of existing entries."""
        self.put(namespace, key, changed)

    def remove(self, namespace: Hashable, key: Any) -> None:
        if self.times is not None and key in self.namespace(namespace):
            # the times in files end with the map, though they were not read
            self.times.mark(namespace, key)
        super().remove(namespace, key)

    def discard(self, namespace: Hashable, key: Any, user_key: Any) -> None:
        """Remove an entry; does nothing if there is none."""
        found = self.of(namespace, key)
        if found is None or self._entry(found, namespace, key, user_key) is None:
            return
        del found.entries[user_key]
        if found.ascending is not None:
            del found.ascending[bisect_left(found.ascending, user_key)]
        found.unwritten.add(user_key)
        self._mark_entries(namespace, key, (user_key,))
        if not found.entries and self.whole(namespace, key) is None:
            self.remove(namespace, key)

    def discard_until(self, namespace: Hashable, key: Any, last: Any) -> Any:
        """Remove the entries with user keys <= ``last``; returns the lowest remaining user key, or None."""
        found = self.whole(namespace, key)
        if found is None:
            return None
        user_keys = self._ascending(found)
        end = bisect_right(user_keys, last)
        if end == len(user_keys):
            self.remove(namespace, key)
            return None
        if end:
            gone = user_keys[:end]
            del user_keys[:end]
            for user_key in gone:
                del found.entries[user_key]
            found.unwritten.update(gone)
            self._mark_entries(namespace, key, gone)
        return user_keys[0]

    def _mark_entries(self, namespace: Hashable, key: Any, user_keys: Iterable[Any]) -> None:
        self._changed_entries.setdefault((namespace, key), set()).update(user_keys)
        super().mark(namespace, key)

    def mark(self, namespace: Hashable, key: Any) -> None:
        self._changed_wholly.add((namespace, key))
        super().mark(namespace, key)

    def changed_entries(self, namespace: Hashable, key: Any) -> set[Any] | None:
        """The user keys of the entries of a map that this epoch has changed; None: the map counts as changed as a
        whole."""
        if (namespace, key) in self._changed_wholly:
            return None
        return self._changed_entries.get((namespace, key))

    def forget_changes(self) -> None:
        super().forget_changes()
        self._changed_entries, self._changed_wholly = {}, set()

    # ------------------------------------------------------------------------------------------------ storing

    def inline_values(self, namespace: Hashable, keys: list[Any]) -> list[Any]:
        """Each map as (whether entries in files do not count, [(user key, number in the order of insertion, value)],
        [removed user keys])."""
        values = self._namespaces[namespace]
        return [self._inline_value(values[key], self._times_of(namespace, key)) for key in keys]

    def _inline_value(self, found: MapEntries, times: MapEntries) -> tuple[bool, list[tuple[Any, int, Any]], list[Any]]:
        if not self._stored or found.cleared:
            return True, [(user_key, *entry) for user_key, entry in found.entries.items()], []
        there = [(k, *found.entries[k]) for k in found.unwritten | times.unwritten if k in found.entries]
        return False, there, [k for k in found.unwritten if k not in found.entries]

    def take_inline_values(self, namespace: Hashable, keys: list[Any], values: list[Any]) -> None:
        maps = self.namespace(namespace)
        for key, (cleared, entries, removed) in zip(keys, values, strict=True):
            found = maps[key] = MapEntries(complete=cleared, cleared=cleared and bool(self._stored))
            for user_key, order, value in entries:
                found.entries[user_key] = (order, value)
            found.unwritten = {*found.entries, *removed}

    def write_to(self, builder: RowsBuilder, stored: StoredState) -> int:
        from flinkish.runtime.exchange.hashes import entry_hashes

        put: list[tuple[Hashable, Any, Any, _Entry, int | None]] = []
        gone: list[tuple[Hashable, Any, Any]] = []
        cleared: list[tuple[Hashable, Any]] = []
        for namespace, marked in self._to_store_with_times().items():
            maps = self._namespaces.get(namespace, {})
            for key in marked:
                found: MapEntries | None = maps.get(key)
                if found is None or found.cleared:
                    if stored:
                        cleared.append((namespace, key))
                    if found is None:
                        continue
                times = self._times_of(namespace, key)
                everything = not stored or found.cleared
                for user_key in (
                    found.entries if everything else found.unwritten | (times.unwritten & found.entries.keys())
                ):
                    entry = found.entries.get(user_key)
                    if entry is None:
                        gone.append((namespace, key, user_key))
                    else:
                        time = times.entries.get(user_key)
                        put.append((namespace, key, user_key, entry, None if time is None else time[1]))
                found.unwritten, found.cleared = set(), False
                times.unwritten = set()
        if cleared:
            builder.clear(self.name, *stored.groups(self.name, *zip(*cleared)))
        if gone:
            namespaces, keys, user_keys = zip(*gone)
            builder.delete(
                self.name,
                *stored.groups(self.name, namespaces, keys),
                entries=stored.encoded(user_keys),
                entry_hashes=entry_hashes(user_keys),
            )
        if put:
            namespaces, keys, user_keys, entries, accessed = zip(*put)
            encoded = stored.encoded([value for _, value in entries])
            self.encoded_bytes = max(self.encoded_bytes, encoded.nbytes // len(encoded))
            builder.put(
                self.name,
                *stored.groups(self.name, namespaces, keys),
                encoded,
                entries=stored.encoded(user_keys),
                entry_hashes=entry_hashes(user_keys),
                orders=[order for order, _ in entries],
                times=accessed,
            )
        return len(put) + len(gone) + len(cleared)

    def _times_of(self, namespace: Hashable, key: Any) -> MapEntries:
        times = self.times.namespace(namespace).get(key) if isinstance(self.times, MapTable) else None
        return times if times is not None else MapEntries(complete=True)
