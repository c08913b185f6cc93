"""Compaction: bounded, complete, and of no effect on what is found."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from flinkish.runtime.exchange.hashes import entry_hashes, group_hashes
from flinkish.runtime.state.files import compaction
from flinkish.runtime.state.files.compaction import Expiry, StateFiles
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.references import FileSet
from flinkish.runtime.state.files.rows import Rows, RowsBuilder

STATE = "count"


def ids_of(keys: list[int]) -> list[bytes]:
    return [b"%d" % key for key in keys]


def put(keys: list[int], value: bytes, time: int | None = None) -> Rows:
    builder = RowsBuilder()
    times = None if time is None else [time] * len(keys)
    builder.put(STATE, group_hashes(STATE, None, keys), ids_of(keys), [value] * len(keys), times=times)
    return builder.build()


def values(files: StateFiles, held: FileSet, keys: list[int]) -> list[bytes | None]:
    return files.lookup(held, STATE, group_hashes(STATE, None, keys), ids_of(keys)).values


@pytest.fixture
def files(tmp_path: Any) -> StateFiles:
    return StateFiles(StateDirectory(str(tmp_path)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything a hundredth of its size."""
    for name in ("MIN_BUDGET_BYTES", "MIN_CYCLE_BYTES", "STEP_BYTES", "FILE_BYTES"):
        monkeypatch.setattr(compaction, name, getattr(compaction, name) // 100)
    monkeypatch.setattr("flinkish.runtime.state.files.merge.FILE_BYTES", compaction.FILE_BYTES)


@pytest.mark.usefixtures("small")
def test_each_call_is_bounded_deltas_are_few_and_the_directory_stays_near_the_live_state(files: StateFiles) -> None:
    count, change = 20_000, 200
    held = files.add(FileSet(), put(list(range(count)), bytes(20)), 1)
    live = held.size_bytes
    rng = random.Random(1)
    newest = dict.fromkeys(range(count), bytes(20))
    for epoch in range(2, 150):
        keys, value = rng.sample(range(count), change), b"%020d" % epoch
        held = files.add(held, put(keys, value), epoch)
        added = sum(file.size_bytes for file in held.deltas[-1])
        newest.update(dict.fromkeys(keys, value))
        before = held.names
        held = files.compact(held, epoch)
        written = sum(file.size_bytes for file in held.files if file.name not in before)
        assert written <= max(compaction.MIN_BUDGET_BYTES, 16 * added) + compaction.STEP_BYTES
        assert len(held.deltas) <= 10
        assert held.size_bytes <= 1.5 * live
        files.directory.delete(before - held.names)
    assert values(files, held, list(range(count))) == list(newest.values())
    assert sum(map(len, files.scan(held))) == count
    assert set(files.directory.names()) >= held.names


@pytest.mark.usefixtures("small")
def test_a_large_first_change_of_a_small_base_is_taken_in_piece_by_piece(files: StateFiles) -> None:
    held = files.add(FileSet(), put([1, 2, 3], b"old"), 1)
    keys = list(range(20_000))
    held = files.add(held, put(keys, b"new" * 10), 2)
    calls = 0
    while held.deltas:
        held = files.compact(held, 3 + calls, budget_bytes=1)
        calls += 1
        assert values(files, held, [1, 19_999, 20_000]) == [b"new" * 10, b"new" * 10, None]
    assert calls > 3
    assert sum(file.rows for file in held.base) == len(keys)


@pytest.mark.usefixtures("small")
def test_one_huge_map_lies_in_many_files_and_an_entry_of_it_is_found_and_cleared(files: StateFiles) -> None:
    entries = list(range(10_000))
    group = np.repeat(group_hashes("map", None, ["key"]), len(entries))

    def rows(value: bytes, which: list[int]) -> Rows:
        builder = RowsBuilder()
        of = {"entries": ids_of(which), "entry_hashes": entry_hashes(which), "orders": which}
        builder.put("map", group[: len(which)], [b"key"] * len(which), [value] * len(which), **of)  # type: ignore[arg-type]
        return builder.build()

    held = files.add(FileSet(), rows(bytes(20), entries), 1)
    assert len(held.base) > 2
    held = files.add(held, rows(b"changed", [7]), 2)

    def found(which: list[int]) -> list[bytes | None]:
        of_group = group[: len(which)]
        return files.lookup(held, "map", of_group, [b"key"] * len(which), ids_of(which), entry_hashes(which)).values

    assert found([6, 7, 10_000]) == [bytes(20), b"changed", None]
    (whole,) = files.groups(held, "map", group[:1], [b"key"])
    assert whole.entries == ids_of(entries)
    builder = RowsBuilder()
    builder.clear("map", group[:1], [b"key"])
    held = files.add(held, builder.build(), 3)
    assert found([6, 7]) == [None, None]
    for epoch in range(4, 30):
        held = files.compact(held, epoch, budget_bytes=1, sweep=held.cursor is None)
        assert found([6, 7, 9_999]) == [None, None, None]
        if not held.files:
            break
    assert held == FileSet()


def test_expired_state_is_dropped_when_it_is_rewritten_and_by_a_sweep(files: StateFiles) -> None:
    held = files.add(FileSet(), put([1, 2], b"old", time=100), 1)
    held = files.add(held, put([2], b"used again", time=200), 2)
    held = files.add(held, put([3], b"has no time"), 2)
    expiry = Expiry(now_ms=150, ttl_ms={STATE: 50})
    assert files.compact(held, 3, expiry=expiry) == FileSet(held.base, held.deltas)
    swept = files.compact(held, 3, expiry=expiry, sweep=True)
    assert values(files, swept, [1, 2, 3]) == [None, b"used again", b"has no time"]
    not_yet = files.compact(held, 3, expiry=Expiry(now_ms=149, ttl_ms={STATE: 50}), sweep=True)
    assert values(files, not_yet, [1, 2, 3]) == [b"old", b"used again", b"has no time"]
    other = files.compact(held, 3, expiry=Expiry(now_ms=1_000, ttl_ms={"other": 50}), sweep=True)
    assert values(files, other, [1, 2, 3]) == [b"old", b"used again", b"has no time"]
    gone = files.compact(swept, 4, expiry=Expiry(now_ms=250, ttl_ms={STATE: 50}), sweep=True)
    assert sum(file.rows for file in gone.files) == 1


def test_a_sweep_that_finds_nothing_rewrites_nothing(files: StateFiles) -> None:
    held = files.add(FileSet(), put(list(range(100)), b"value", time=100), 1)
    assert files.compact(held, 2, expiry=Expiry(now_ms=100, ttl_ms={STATE: 50}), sweep=True) == held


def test_the_same_changes_make_the_same_files(tmp_path: Any) -> None:
    def run(folder: str) -> list[Any]:
        files, held = StateFiles(StateDirectory(str(tmp_path / folder))), FileSet()
        for epoch in range(1, 12):
            held = files.add(held, put(list(range(epoch, epoch + 50)), b"%d" % epoch), epoch)
            held = files.compact(held, epoch, sweep=epoch == 9)
        return [(file.sha256, file.low, file.high) for file in held.files]

    assert run("one") == run("other")
