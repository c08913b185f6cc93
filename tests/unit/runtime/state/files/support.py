"""A model of keyed state as a dict, and what drives it and the files side by side."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from flinkish.runtime.exchange.stable_hash import raw_hash
from flinkish.runtime.state.files import compaction
from flinkish.runtime.state.files import merge as run_writer
from flinkish.runtime.state.files.rows import Rows, RowsBuilder


def encoded(value: Any) -> bytes:
    return pickle.dumps(value)


def same_value(left: bytes, right: bytes) -> bool:
    return bool(pickle.loads(left) == pickle.loads(right))


def few_hashes(values: list[Any], count: int) -> Any:
    """Equal values have equal hashes, and so have many others."""
    return np.array([raw_hash(value) % count << 61 for value in values], np.uint64)


@contextmanager
def small_files() -> Iterator[None]:
    """Files of a few rows, so that a few rows are many files, and cycles begin at once."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (run_writer, compaction):
            patch.setattr(module, "FILE_ROWS", 4)
            patch.setattr(module, "FILE_BYTES", 2000)
        patch.setattr(compaction, "STEP_BYTES", 3000)
        patch.setattr(compaction, "MIN_BUDGET_BYTES", 4000)
        patch.setattr(compaction, "MIN_CYCLE_BYTES", 4000)
        yield


class Model:
    """(state, key) -> {entry: (order, time, value)}; equal keys and entries are one, as in any dict. `changes` gives
    what became of them since the last call, as the rows that a backend would write."""

    def __init__(self, hashes: int) -> None:
        self.groups: dict[tuple[str, Any], dict[Any, tuple[int, int | None, Any]]] = {}
        self._hashes = hashes
        self._cleared: dict[tuple[str, Any], None] = {}
        self._touched: dict[tuple[str, Any], dict[Any, None]] = {}
        self._order = 0

    def put(self, state: str, key: Any, entry: Any, value: Any, time: int | None = None) -> None:
        group = self.groups.setdefault((state, key), {})
        self._order += 1
        # an entry that is there keeps its place
        order = group[entry][0] if entry in group else self._order
        group[entry] = order, time, value
        self._touched.setdefault((state, key), {})[entry] = None

    def delete(self, state: str, key: Any, entry: Any) -> None:
        self.groups.get((state, key), {}).pop(entry, None)
        self._touched.setdefault((state, key), {})[entry] = None

    def clear(self, state: str, key: Any) -> None:
        self.groups.pop((state, key), None)
        self._touched.pop((state, key), None)
        self._cleared[state, key] = None

    def hashes(self, keys: list[Any]) -> Any:
        return few_hashes(keys, self._hashes)

    def entry_hashes(self, entries: list[Any]) -> Any:
        return few_hashes([0 if entry is None else entry for entry in entries], self._hashes)

    def changes(self) -> Rows:
        builder = RowsBuilder()
        for state, key in self._cleared:
            builder.clear(state, self.hashes([key]), [encoded(key)])
        for (state, key), entries in self._touched.items():
            group = self.groups.get((state, key), {})
            for entry in entries:
                hashes, ids = self.hashes([key]), [encoded(key)]
                of_entry = {"entries": [encoded(entry)], "entry_hashes": self.entry_hashes([entry])}
                if entry in group:
                    order, time, value = group[entry]
                    values = [encoded(value)]
                    builder.put(state, hashes, ids, values, orders=[order], times=[time], **of_entry)
                else:
                    builder.delete(state, hashes, ids, **of_entry)
        self._cleared, self._touched = {}, {}
        return builder.build()
