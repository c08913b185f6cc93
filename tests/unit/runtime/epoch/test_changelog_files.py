"""The files of the changelog and the rows that a checkpoint makes of them."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.time import TimeDomain
from flinkish.errors import CorruptStateError
from flinkish.runtime.epoch.changelog_files import (
    epoch_directory,
    read_changes,
    read_parts,
    write_changes,
    write_parts,
)
from flinkish.runtime.state.changelog import Change, can_be_told, encode_changes, key_texts
from flinkish.runtime.state.saved.texts import to_savepoint_row
from flinkish.runtime.state.state_rows import TIMERS_PREFIX
from flinkish.runtime.stored.classes import NO_CLASSES
from flinkish.spark.changelog import ChangesToRows
from flinkish.spark.worker import DeployedClasses
from tests.support.any_values import ANY_TEXTS, LONG_INTEGERS


def rows_of(changelog: Path, epoch: int) -> list[dict[str, Any]]:
    files = sorted(Path(epoch_directory(str(changelog), epoch)).glob("*.parquet"))
    batches = [batch for path in files for batch in read_changes(str(path))]
    return [row for batch in ChangesToRows(DeployedClasses.of(NO_CLASSES))(iter(batches)) for row in batch.to_pylist()]


def write(changelog: Path, *changes: Change, epoch: int = 3) -> str:
    return write_changes(str(changelog), epoch, [encode_changes(epoch, changes)])


def test_a_changed_value_is_a_marker_and_the_row_that_there_is_now(tmp_path: Path) -> None:
    write(tmp_path, Change("counts", "sum", "value", None, "u1", None, (7,)))
    marker, row = rows_of(tmp_path, 3)
    place = {"epoch": 3, "uid": "counts", "state": "sum", "kind": "value", "key": '"u1"', "namespace": "null"}
    assert marker == {**place, "value": None, "slot": "", "marker": True}
    assert row == {**place, "value": "7", "slot": "", "marker": False}


def test_what_is_gone_is_only_a_marker_and_a_map_has_a_row_per_entry(tmp_path: Path) -> None:
    write(
        tmp_path,
        Change("a", "gone", "value", (0, 10), "k", None, ()),
        Change("a", "map", "map", None, "k", None, ((1, 2), (3, 4))),
    )
    assert [(row["state"], row["marker"]) for row in rows_of(tmp_path, 3)] == [
        ("gone", True), ("gone", True), ("map", True), ("map", False), ("map", False),
    ]  # fmt: skip


def test_each_timer_has_a_slot_of_its_own(tmp_path: Path) -> None:
    domain = TimeDomain.EVENT_TIME.name
    write(tmp_path, Change("a", TIMERS_PREFIX + "t", domain, None, "k", 500, (500,)))
    assert [(row["slot"], row["value"], row["marker"]) for row in rows_of(tmp_path, 3)] == [
        (f"{domain}/500", "500", True),
        (f"{domain}/500", "500", False),
    ]


def test_each_entry_of_a_map_has_a_slot_of_its_own_under_each_text_of_its_map_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        Change("a", "m", "map", None, "k", None, ((True, 2),), (True,)),
        Change("a", "m", "map", None, "l", None, (("x, ", 3),)),
        Change("a", "m", "map", None, "k", None, (), ("gone",)),
    )
    one, true, gone, text = '{"$tuple": [1, ', '{"$tuple": [true, ', '{"$tuple": ["gone", ', '{"$tuple": ["x, ", '
    assert [(row["slot"], row["value"], row["marker"]) for row in rows_of(tmp_path, 3)] == [
        (one, one, True),
        (true, true, True),
        (true, true + "2]}", False),
        ("", None, True),
        (text, text + "3]}", False),
        (gone, gone, True),
    ]


def test_a_map_key_whose_texts_cannot_be_told_is_said_so(tmp_path: Path) -> None:
    write(tmp_path, Change("a", "m", "map", None, "k", None, ((1.5, 7),), (1.5,)))
    (row,) = rows_of(tmp_path, 3)
    assert row["uid"] is None and row["state"] == "m" and row["key"] == "1.5"
    assert not can_be_told(1.5) and not can_be_told(("a", 1.5)) and can_be_told(("a", 1)) and can_be_told("a")


@pytest.mark.parametrize(
    ("key", "shown"),
    [(1.5, "1.5"), ((1.5, "\ud83d"), "(1.5, '\\ud83d')"), ((1.5, 10**5000), "<a tuple without a text")],
    ids=["float", "text", "int"],
)
def test_a_key_whose_texts_cannot_be_told_is_said_so(tmp_path: Path, key: Any, shown: str) -> None:
    write(tmp_path, Change("a", "sum", "value", None, key, None, (7,)))
    (row,) = rows_of(tmp_path, 3)
    assert row["uid"] is None and row["state"] == "sum" and row["key"].startswith(shown)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            ANY_TEXTS | st.integers(-1, 2) | LONG_INTEGERS,
            st.sampled_from([None, (5, 60), "\ud83d"]),
            st.sampled_from([(), (7,), (("x", 1),), (None,), ([1.5, "y"],), ({"k": b"z"},), ({"\ude00": 1},)])
            | st.tuples(ANY_TEXTS | LONG_INTEGERS),
        ),
        max_size=30,
    )
)
def test_changes_converted_by_columns_have_the_rows_that_each_has_by_itself(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, Any, Any, tuple[Any, ...]]]
) -> None:
    folder = tmp_path_factory.mktemp("changelog")
    changes = [Change("u", state, "value", namespace, key, None, values) for state, key, namespace, values in drawn]
    write(folder, *changes)
    expected = []
    for change in changes:
        names = {"epoch": 3, "uid": "u", "state": change.state, "kind": "value", "slot": ""}
        for key, namespace in product(key_texts(change.key) or [], key_texts(change.namespace) or []):
            expected.append({**names, "key": key, "namespace": namespace, "value": None, "marker": True})
        for row in change.rows():
            texts = to_savepoint_row("u", row)
            there = {"key": texts.key, "namespace": texts.namespace, "value": texts.value}
            expected.append({**names, **there, "marker": False})
    assert sorted(map(repr, map(sorted, map(dict.items, rows_of(folder, 3))))) == sorted(
        map(repr, map(sorted, map(dict.items, expected)))
    )


def test_only_the_parts_of_the_last_run_of_an_epoch_count_also_when_it_changes_nothing(tmp_path: Path) -> None:
    assert read_parts(str(tmp_path), 3) == []
    write(tmp_path, Change("a", "sum", "value", None, "k", None, (1,)))
    again = write(tmp_path, Change("a", "sum", "value", None, "k", None, (2,)))
    assert read_parts(str(tmp_path), 3) == [], "parts that no list names are those of a run that has failed"
    write_parts(str(tmp_path), 3, [again])
    assert [Path(path).name for path in read_parts(str(tmp_path), 3)] == [again]
    write_parts(str(tmp_path), 3, [])
    assert read_parts(str(tmp_path), 3) == []


def test_changes_in_the_list_are_read_like_those_of_a_part(tmp_path: Path) -> None:
    one, two = (encode_changes(3, [Change("a", "sum", "value", None, "k", None, (n,))]) for n in (1, 2))
    part = write_changes(str(tmp_path), 3, [one])
    write_parts(str(tmp_path), 3, [part], [two])
    paths = read_parts(str(tmp_path), 3)
    assert [Path(path).name for path in paths] == [part, "_parts.json"]
    read = [batch.column("changes").to_pylist() for path in paths for batch in read_changes(path)]
    assert read == [[one], [two]]


def test_changes_in_a_list_in_which_a_bit_has_changed_are_never_read(tmp_path: Path) -> None:
    write_parts(str(tmp_path), 3, [], [encode_changes(3, [Change("a", "sum", "value", None, "k", None, (1,))])])
    (path,) = map(Path, read_parts(str(tmp_path), 3))
    written = path.read_bytes()
    for position in range(0, len(written), 7):
        data = bytearray(written)
        data[position] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptStateError, match="epoch=3/_parts.json.*the next checkpoint is a full one"):
            read_changes(str(path))


def test_a_damaged_list_of_parts_is_named(tmp_path: Path) -> None:
    write_parts(str(tmp_path), 3, ["part-a.parquet"])
    (file,) = tmp_path.glob("*/_parts.json")
    file.write_text(file.read_text().replace("part-a", "part-b"))
    with pytest.raises(CorruptStateError, match="epoch=3/_parts.json"):
        read_parts(str(tmp_path), 3)


def test_a_part_in_which_a_bit_has_changed_is_never_read(tmp_path: Path) -> None:
    changes = [Change("u", "s", "value", None, f"key {n}", None, (n, "x" * n)) for n in range(100)]
    name = write(tmp_path, *changes)
    path = Path(epoch_directory(str(tmp_path), 3)) / name
    written = path.read_bytes()
    chosen = random.Random(17)
    for _ in range(400):
        data = bytearray(written)
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        path.write_bytes(data)
        with pytest.raises(CorruptStateError, match=f"{name}.*the next checkpoint is a full one"):
            read_changes(str(path))
    path.write_bytes(written)
    assert len(rows_of(tmp_path, 3)) == 300


@pytest.mark.parametrize("change", ["cut", "longer", "another part", "without a digest", "missing"])
def test_a_part_that_is_not_what_was_written_is_damaged(tmp_path: Path, change: str) -> None:
    path, other = (
        Path(epoch_directory(str(tmp_path), 3)) / write(tmp_path, Change("u", "s", "value", None, key, None, (1,)))
        for key in ("a", "b")
    )
    if change == "without a digest":
        path = path.rename(path.with_name("part-0123.parquet"))
    elif change == "missing":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes({"cut": data[:-1], "longer": data + b"x", "another part": other.read_bytes()}[change])
    with pytest.raises(CorruptStateError, match=path.name):
        read_changes(str(path))
