"""State that expires and lies in files: values and the times of the last access to them are read apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.core.state import StateTtlConfig
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state import map_table
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.changelog import apply_changes
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.limits import ManagedMemory
from flinkish.runtime.state.saved.columns import stored_rows
from flinkish.runtime.state.saved.restore import SavepointRows
from flinkish.runtime.state.state_rows import StateColumns
from tests.unit.runtime.state.files.support import small_files
from tests.unit.runtime.state.test_ttl import descriptors, ttl

KINDS = ["value", "list", "map", "reducing", "aggregating"]


class Filed:
    """One state of key "k" that lives for 100 ms and lies in files, of which nothing stays in memory."""

    def __init__(self, directory: Path, kind: str, builder: StateTtlConfig.Builder, undone: bool = False) -> None:
        self._directory = StateDirectory(str(directory))
        self._kind, self._config = kind, builder.build()
        self.epoch = EpochInfo()
        self._undone = undone
        self.open(None)

    def open(self, body: bytes | None, inline_bytes: int = 0) -> None:
        self.backend = KeyedStateBackend(
            "tested",
            self.epoch,
            directory=self._directory,
            inline_bytes=inline_bytes,
            memory=ManagedMemory(1),
            recording=True,
            uid="uid",
            undone=self._undone,
        )
        self.backend.restore(body)
        descriptor = descriptors()[self._kind]
        descriptor.enable_time_to_live(self._config)
        self.state: Any = self.backend.partitioned_state(descriptor)
        self.backend.current_key = "k"

    def at(self, time_ms: int) -> None:
        self.epoch.epoch += 1
        self.epoch.processing_time_ms = time_ms

    def write(self, *numbers: int) -> None:
        for number in numbers:
            if self._kind == "value":
                self.state.update(number)
            elif self._kind == "map":
                self.state.put(number, number)
            else:
                self.state.add(number)

    def read(self) -> Any:
        if self._kind == "map":
            return dict(self.state.items())
        return self.state.value() if self._kind == "value" else self.state.get()

    def snapshot(self) -> bytes | None:
        body = self.backend.snapshot()
        self.backend.make_room()
        return body

    def rows(self, body: bytes | None) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for row in stored_rows(body, self._directory):
            found.setdefault(row.state, []).append(row.value)
        return found


def renewed_by_a_read(directory: Path, kind: str) -> tuple[Filed, Any]:
    """State whose value lies in a file, and whose time a read of its value at 60 ms has renewed; and that value."""
    filed = Filed(directory, kind, ttl().update_ttl_on_read_and_write())
    filed.at(0)
    filed.write(7)
    filed.open(filed.snapshot(), inline_bytes=1_000_000)
    filed.at(60)
    return filed, filed.read()


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_that_only_a_read_has_renewed_outlives_a_restart(tmp_path: Path, kind: str) -> None:
    filed, value = renewed_by_a_read(tmp_path, kind)
    # the value lies in a file, its new time is stored with the task
    body = filed.snapshot()
    filed.open(body, inline_bytes=1_000_000)
    filed.at(120)
    assert filed.read() == value


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_which_only_the_time_was_restored_stays_when_that_is_written(tmp_path: Path, kind: str) -> None:
    filed, value = renewed_by_a_read(tmp_path, kind)
    filed.open(filed.snapshot())
    filed.at(120)
    filed.open(filed.snapshot())
    assert filed.read() == value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times_first", [False, True])
def test_a_savepoint_larger_than_memory_is_restored_with_its_times(
    tmp_path: Path, kind: str, times_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_table, "FEW_ENTRIES", 1)
    saved = Filed(tmp_path / "saved", kind, ttl())
    saved.at(10)
    saved.write(1, 2, 3)
    before = saved.rows(saved.snapshot())
    restored = Filed(tmp_path / "restored", kind, ttl())
    rows = SavepointRows({}, "uid", restored.backend, 0)
    for state in sorted(before, reverse=not times_first):
        for value in before[state]:
            table_kind = "value" if state.startswith("__ttl__") and kind not in ("list", "map") else kind
            rows.take_in("uid", StateColumns(state, table_kind, [None], ["k"], [value]))
            restored.backend.release(), restored.backend.release()
    rows.end()
    restored.backend.release(), restored.backend.release()
    assert restored.rows(restored.snapshot()) == before


def test_elements_that_are_added_after_others_have_expired_in_files_take_the_place_of_none(tmp_path: Path) -> None:
    with small_files():
        filed = Filed(tmp_path, "list", ttl())
        filed.at(0)
        filed.write(*range(5))
        filed.snapshot()
        filed.at(50)
        filed.write(*range(5, 10))
        body = filed.snapshot()
        filed.at(110)
        stored = filed.backend.stored
        stored.files = stored.state_files.compact(stored.files, 9, expiry=_expiry(110), sweep=True)
        filed.backend.release(), filed.backend.release()
        filed.write(10)
        filed.snapshot()
        filed.backend.release(), filed.backend.release()
        assert body and filed.read() == [*range(5, 11)]


def _expiry(now_ms: int) -> Any:
    from flinkish.runtime.state.files.compaction import Expiry

    return Expiry(now_ms, {"list": 100})


def test_removing_an_entry_of_a_map_keeps_the_times_of_those_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_table, "FEW_ENTRIES", 1)
    filed = Filed(tmp_path, "map", ttl())
    filed.at(10)
    filed.write(1, 2, 3)
    filed.open(filed.snapshot(), inline_bytes=1_000_000)
    filed.at(20)
    filed.state.remove(2)
    assert sorted(filed.rows(filed.snapshot())["__ttl__/map"]) == [(1, 10), (3, 10)]


@pytest.mark.parametrize("cleared", [False, True])
def test_the_changelog_knows_the_times_of_a_map_that_are_not_in_memory(
    tmp_path: Path, cleared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_table, "FEW_ENTRIES", 1)
    filed = Filed(tmp_path, "map", ttl().update_ttl_on_read_and_write())
    table: Any = {}
    filed.at(10)
    filed.write(1, 2, 3)
    filed.snapshot()
    apply_changes(table, filed.backend.take_changes())
    filed.at(20)
    if cleared:
        filed.state.clear()
    else:
        assert filed.state.get(2) == 2
        filed.backend.make_room()
        filed.backend.release(), filed.backend.release()
    body = filed.snapshot()
    apply_changes(table, filed.backend.take_changes())
    changed: dict[str, list[Any]] = {}
    for rows in table.values():
        for row in rows:
            changed.setdefault(row.state, []).append(row.value)
    expected = {state: sorted(values) for state, values in filed.rows(body).items()}
    assert {state: sorted(values) for state, values in changed.items()} == expected


def test_a_time_that_an_undone_call_has_read_from_files_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_table, "FEW_ENTRIES", 1)
    filed = Filed(tmp_path, "map", ttl(), undone=True)
    filed.at(10)
    filed.write(1, 2, 3)
    filed.open(filed.snapshot())
    filed.at(60)
    log = filed.backend.undo_log
    assert log is not None
    log.begin()
    filed.state.remove(9)
    filed.state.put(2, "undone")
    log.undo()
    filed.at(110)
    assert filed.state.get(2) is None


@pytest.mark.parametrize("kind", ["value", "reducing", "aggregating"])
def test_values_that_are_stored_because_most_others_have_changed_keep_their_times(tmp_path: Path, kind: str) -> None:
    directory, epoch, keys = StateDirectory(str(tmp_path)), EpochInfo(), [f"k{number}" for number in range(10)]

    def backend(inline_bytes: int) -> KeyedStateBackend:
        return KeyedStateBackend("tested", epoch, directory=directory, inline_bytes=inline_bytes, uid="uid")

    def write(to: KeyedStateBackend, some: list[str]) -> None:
        descriptor = descriptors()[kind]
        descriptor.enable_time_to_live(ttl().build())
        state: Any = to.partitioned_state(descriptor)
        # twice: the second batch finds most keys marked
        for _ in range(2):
            to.prefetch(keys)
            for key in some:
                to.current_key = key
                state.update(1) if kind == "value" else state.add(1)

    first, second = backend(0), backend(10**6)
    epoch.processing_time_ms = 10
    write(first, keys)
    second.restore(first.snapshot())
    epoch.epoch, epoch.processing_time_ms = 1, 20
    write(second, keys[:6])
    rows = stored_rows(second.snapshot(), directory)
    times = {row.key: row.value for row in rows if row.state.startswith("__ttl__")}
    assert times == {**dict.fromkeys(keys[:6], 20), **dict.fromkeys(keys[6:], 10)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_changelog_knows_the_times_of_a_window_whose_state_was_evicted_and_cleared(
    tmp_path: Path, kind: str
) -> None:
    filed = Filed(tmp_path, kind, ttl())
    descriptor = descriptors()[kind]
    descriptor.enable_time_to_live(ttl().build())
    filed.state = filed.backend.partitioned_state(descriptor, "window")
    table: dict[Any, Any] = {}
    for time_ms, ends in ((10, False), (20, False), (30, True)):
        filed.at(time_ms)
        # one epoch does not use the window
        if time_ms != 20:
            filed.backend.prefetch(["k"], "window")
            filed.backend.current_key = "k"
            filed.write(1)
        if ends:
            filed.state.clear()
        body = filed.backend.snapshot()
        for change in filed.backend.take_changes():
            apply_changes(table, [change])
        filed.backend.release()
        filed.backend.release()
    assert list(stored_rows(body, StateDirectory(str(tmp_path)))) == []
    assert not any(table.values())
