"""List state: elements that are appended become rows of their own, so that the list is not written again as a whole."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

from flinkish.runtime.state.state_table import StateTable, spread
from flinkish.runtime.state.stored_state import StoredState

if TYPE_CHECKING:
    from flinkish.runtime.state.files.rows import RowsBuilder


class ListTable(StateTable):
    """A table whose values are lists. ``mark`` records that a list was replaced, ``mark_grown`` that elements are
    appended to a list that was fetched before."""

    def __init__(self, name: str, kind: str, stored: StoredState) -> None:
        super().__init__(name, kind, stored)
        #: namespace -> key -> how many of the first elements of the list lie in files, at the places of their indices
        self._in_files: dict[Hashable, dict[Any, int]] = {}
        #: the ends of lists whose beginning lies in files and was not read: (index of the first element, elements)
        self._ends: dict[Hashable, dict[Any, tuple[int, list[Any]]]] = {}

    def fetch(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        if self._ends and self.timed is None:
            self._read_beginnings(namespace, self._ends.get(namespace, {}).keys() & set(keys))
        super().fetch(namespace, keys)

    def fetch_all(self, by_namespace: Mapping[Hashable, Iterable[Any]]) -> None:
        if self._ends and self.timed is None:
            for namespace, keys in by_namespace.items():
                self._read_beginnings(namespace, self._ends.get(namespace, {}).keys() & set(keys))
        super().fetch_all(by_namespace)

    def _load(self, missing: dict[Hashable, list[Any]]) -> None:
        found = iter(self._stored.lists(self.name, *spread(missing)))
        for namespace, keys in missing.items():
            values, absent = self.namespace(namespace), self._absent.setdefault(namespace, set())
            for key, (elements, times, in_place) in zip(keys, found):
                if not elements:
                    absent.add(key)
                    continue
                values[key] = elements
                self._in_files.setdefault(namespace, {})[key] = in_place
                if isinstance(self.times, ListTable) and any(time is not None for time in times):
                    self.times.namespace(namespace)[key] = times
                    self.times._in_files.setdefault(namespace, {})[key] = in_place

    def _read_beginnings(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        """Read the beginnings of lists of which only the ends are in memory."""
        keys = list(keys)
        if not keys:
            return
        self._load({namespace: keys})
        for table in (self, self.times):
            if isinstance(table, ListTable):
                ends = table._ends.get(namespace, {})
                for key in keys:
                    start, elements = ends.pop(key, (0, []))
                    if elements:
                        table.namespace(namespace)[key] = [*table.namespace(namespace).get(key, ())[:start], *elements]

    def mark(self, namespace: Hashable, key: Any) -> None:
        self._replaced(namespace, key)
        super().mark(namespace, key)

    def mark_all(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        keys = list(keys)
        for key in keys:
            self._replaced(namespace, key)
        super().mark_all(namespace, keys)

    def mark_grown(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        super().mark_all(namespace, keys)

    def entry_in_memory(self, namespace: Hashable, key: Any, index: int) -> Any:
        """An element of the list of a key that was fetched; None: there is none."""
        elements = self._namespaces.get(namespace, {}).get(key, ())
        return elements[index] if index < len(elements) else None

    def replace(self, namespace: Hashable, key: Any, index: int, element: Any) -> None:
        """Replace an element that the running call has added."""
        self._namespaces[namespace][key][index] = element

    def put_changed(self, namespace: Hashable, key: Any, changed: dict[int, Any]) -> None:
        """Set elements (index -> element) of an existing list."""
        self.mark(namespace, key)
        for index, element in changed.items():
            self.replace(namespace, key, index, element)

    def _replaced(self, namespace: Hashable, key: Any) -> None:
        for places in (self._in_files, self._ends):
            if namespace in places:
                places[namespace].pop(key, None)

    # ------------------------------------------------------------------------------------------------ storing

    def _start(self, namespace: Hashable, key: Any) -> int:
        """The index of the first element of a list that must be stored."""
        start = self._in_files.get(namespace, {}).get(key, 0)
        if isinstance(self.times, ListTable) and key in self.times.namespace(namespace):
            # elements whose time of the last access has changed are written again
            start = min(start, self.times._in_files.get(namespace, {}).get(key, 0))
        return start

    def _end_of(self, namespace: Hashable, key: Any) -> tuple[int, list[Any]]:
        """(index of the first one, elements) of the part of an existing list that must be stored."""
        values = self._namespaces.get(namespace, {})
        if key not in values:
            return self._ends[namespace][key]
        start = self._start(namespace, key)
        return start, values[key][start:]

    def _is_there(self, namespace: Hashable, key: Any) -> bool:
        return key in self._namespaces.get(namespace, ()) or key in self._ends.get(namespace, ())

    def inline_keys(self, namespace: Hashable, marked: Iterable[Any]) -> list[Any]:
        return [key for key in marked if self._is_there(namespace, key)]

    def inline_values(self, namespace: Hashable, keys: list[Any]) -> list[Any]:
        """Each list as (index of the first element that lies in no file, the elements from there on)."""
        return [self._end_of(namespace, key) for key in keys]

    def take_inline_values(self, namespace: Hashable, keys: list[Any], values: list[Any]) -> None:
        for key, (start, elements) in zip(keys, values, strict=True):
            if start:
                self._ends.setdefault(namespace, {})[key] = (start, elements)
            else:
                self.namespace(namespace)[key] = elements

    def write_to(self, builder: RowsBuilder, stored: StoredState) -> int:
        import numpy as np

        namespaces: list[Hashable] = []
        keys: list[Any] = []
        chunks: list[Any] = []
        places: list[int] = []
        times: list[int | None] = []
        cleared: list[tuple[Hashable, Any]] = []
        for namespace, marked in self._to_store_with_times().items():
            for key in marked:
                there = self._is_there(namespace, key)
                start, elements = self._end_of(namespace, key) if there else (0, [])
                if not start and stored:
                    cleared.append((namespace, key))
                for place, chunk, time in self._chunks(namespace, key, start, elements):
                    namespaces.append(namespace)
                    keys.append(key)
                    chunks.append(chunk)
                    places.append(place)
                    times.append(time)
                if there:
                    self._now_in_files(namespace, key, start + len(elements))
        if cleared:
            builder.clear(self.name, *stored.groups(self.name, *zip(*cleared)))
        if keys:
            encoded = stored.encoded(chunks)
            self.encoded_bytes = max(self.encoded_bytes, encoded.nbytes // len(encoded))
            builder.put(
                self.name,
                *stored.groups(self.name, namespaces, keys),
                encoded,
                entries=[place.to_bytes(8, "big") for place in places],
                entry_hashes=np.array(places, np.uint64),
                orders=places,
                times=times,
            )
        return len(keys) + len(cleared)

    def _chunks(
        self, namespace: Hashable, key: Any, start: int, elements: list[Any]
    ) -> Iterator[tuple[int, list[Any], int | None]]:
        """(index of the first one, elements, time of their last access) for each row: neighbouring elements with the
        same time are one row."""
        if not elements:
            return
        times: Iterable[int | None] = repeat(None, len(elements))
        if isinstance(self.times, ListTable) and self.times._is_there(namespace, key):
            of_list = self.times._namespaces.get(namespace, {}).get(key)
            known = self.times._ends[namespace][key][1] if of_list is None else of_list[start:]
            times = [*known, *repeat(None, len(elements) - len(known))]
        place = start
        for time, run in groupby(zip(times, elements), lambda pair: pair[0]):
            chunk = [element for _, element in run]
            yield place, chunk, time
            place += len(chunk)

    def _now_in_files(self, namespace: Hashable, key: Any, length: int) -> None:
        if key in self._namespaces.get(namespace, ()):
            self._in_files.setdefault(namespace, {})[key] = length
            if isinstance(self.times, ListTable):
                self.times._in_files.setdefault(namespace, {})[key] = length
        else:
            self._ends[namespace].pop(key)
            if isinstance(self.times, ListTable):
                self.times._ends.get(namespace, {}).pop(key, None)

    def release(self) -> None:
        super().release()
        for table in (self, self.times):
            if isinstance(table, ListTable):
                for namespace, lengths in list(table._in_files.items()):
                    kept = self._namespaces.get(namespace, {}).keys() | self._cold.get(namespace, {}).keys()
                    table._in_files[namespace] = {key: n for key, n in lengths.items() if key in kept}
