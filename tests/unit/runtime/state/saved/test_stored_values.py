"""Stored rows are decoded, migrated and shown to the declared types; what does not fit is counted and named."""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

import pytest

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.runtime.state.saved.texts import SavepointColumns, SavepointRow
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates, RowReader
from flinkish.runtime.stored.texts import to_text
from tests.support.written_opcodes import Opcodes, called, got, pushed, remembered, savepoint_text, with_elements

DEEP = Opcodes(pickle.NONE + pickle.TUPLE1 * 20_000)
LISTS = Opcodes(pickle.EMPTY_LIST * 990 + pickle.APPEND * 989)
CYCLE = with_elements(remembered(pushed([])), got(0), got(0))


def reader(
    kind: str = "value",
    declared: TypeInformation | None = None,
    *,
    changed: bool = True,
    convert: bool = False,
    migration: Any = None,
) -> RowReader:
    state = ProgramState(kind, Types.STRING() if kind == "map" else None, declared, changed)
    migrations = {} if migration is None else {("a", "s"): migration}
    return RowReader(ProgramStates({"a": {"s": state}}), migrations, convert)


def row(value: Any, kind: str = "value", key: Any = "k", namespace: Any = "null", state: str = "s") -> SavepointRow:
    text = value if isinstance(value, str) else to_text(value)
    return SavepointRow("a", state, kind, to_text(key), namespace, text)


def problem(checked: RowReader) -> str:
    (found,) = checked.found.values()
    assert (found.rows, found.bad_rows) == (1, 1)
    return found.problem


@pytest.mark.parametrize(
    ("kind", "declared", "value", "message"),
    [
        ("value", Types.STRING(), 5, "5"),
        ("value", Types.INT(), 2**40, "would become"),
        ("value", Types.LONG(), 2**63, "would become"),
        ("value", Types.FLOAT(), 1e300, "would become"),
        ("list", Types.LONG(), [1, "x"], "'x'"),
        ("map", Types.LONG(), ("k", "x"), "'x'"),
        ("map", Types.LONG(), (1.5, 1), "1.5"),
        ("map", Types.LONG(), [1], "no entry of a map"),
        ("list", Types.LONG(), 5, "is no list"),
        ("queue", Types.LONG(), 5, "no kind of state"),
        ("value", Types.LONG(), "12x", "'12x' is not a value"),
    ],
)
def test_values_that_cannot_be_held_are_named(kind: str, declared: Any, value: Any, message: str) -> None:
    checked = reader(kind, declared)
    assert checked.read(row(value, kind)) is None
    text = problem(checked)
    assert text.startswith('the row of key "k": ') and message in text


@pytest.mark.parametrize(
    ("key_type", "key"), [(Types.INT(), 2**32 + 1), (Types.BOOLEAN(), 2), (Types.TUPLE([Types.BYTE()]), (257,))]
)
def test_keys_of_a_map_that_would_become_other_keys_are_named(key_type: TypeInformation, key: Any) -> None:
    states = ProgramStates({"a": {"s": ProgramState("map", key_type, Types.LONG(), type_changed=True)}})
    checked = RowReader(states, {}, convert=False)
    assert checked.read(row((key, 1), "map")) is None
    assert f"does not fit the declared type {key_type!r}" in problem(checked)


def test_values_of_a_type_that_did_not_change_stay_as_they_are() -> None:
    value = reader(declared=Types.FLOAT(), changed=False).read(row(0.1))
    assert value is not None and value.value == 0.1
    assert reader(declared=Types.DOUBLE(), changed=False).read(row(math.nan)) is not None


def test_edited_values_become_what_the_declared_type_makes_of_them() -> None:
    pair = Types.TUPLE([Types.LONG(), Types.STRING()])
    read = reader(declared=pair, changed=False, convert=True).read(row([1, "x"]))
    assert read is not None and read.value == (1, "x")


def test_a_namespace_that_was_left_out_is_none() -> None:
    read = reader(declared=Types.LONG()).read(row(5, namespace=None))
    assert read is not None and read.namespace is None


def test_migrations_change_values_and_the_values_of_map_entries() -> None:
    read = reader(declared=Types.STRING(), migration=str).read(row(5))
    assert read is not None and read.value == "5"
    read = reader("map", Types.STRING(), migration=str).read(row(("k", 5), "map"))
    assert read is not None and read.value == ("k", "5")
    failing = reader(declared=Types.STRING(), migration=lambda value: value["x"])
    assert failing.read(row(5)) is None
    assert 'the row of key "k": the migration raised TypeError' in problem(failing)


def test_timers_and_states_that_only_the_engine_knows_are_checked_as_far_as_it_must() -> None:
    checked = reader()
    assert checked.read(row(5, "EVENT_TIME", state="__timers__/user")) is not None
    assert checked.read(row(None, "EVENT_TIME", state="__timers__/user")) is None
    assert checked.read(row(5, "NO_TIME", state="__timers__/x")) is None
    assert checked.read(row([1, 2], "aggregating", state="other")) is not None
    assert [found.bad_rows for found in checked.found.values()] == [1, 1, 0]


def test_edited_rows_need_keys_of_the_declared_type() -> None:
    states = ProgramStates({}, {}, {"a": Types.STRING()})
    assert RowReader(states, {}, convert=True).read(row(5)) is not None
    checked = RowReader(states, {}, convert=True)
    assert checked.read(row(5, key=7)) is None
    assert problem(checked).startswith("the row of key 7: ")
    assert RowReader(states, {}, convert=False).read(row(5, key=7)) is not None
    numbers = ProgramStates({}, {}, {"a": Types.TUPLE([Types.INT(), Types.FLOAT()])})
    assert RowReader(numbers, {}, convert=True).read(row(5, key=(1, 0.5))) is not None
    for other in ((2**32 + 1, 0.5), (1, 0.1)):
        checked = RowReader(numbers, {}, convert=True)
        assert checked.read(row(5, key=other)) is None
        assert "does not fit the declared type TupleTypeInfo(Integer, Float)" in problem(checked)


#: Texts in place of a key, a value or a namespace with which a row is bad, and what is said about it.
BAD_TEXTS: dict[str, tuple[dict[str, str], str]] = {
    "a key that is nested deeply": ({"key": "[" * 480 + "]" * 480}, "nested too deeply|RecursionError|is not a value"),
    "a list of a pickle as a key, nested deeply": ({"key": savepoint_text(LISTS)}, "nested too deeply"),
    "a key that JSON cannot read": ({"key": "[" * 100_000}, "is not a value"),
    "a key without a hash": ({"key": '{"a": 1}'}, "cannot be a key: unhashable"),
    "a key that is a long integer": ({"key": savepoint_text(1 << 200_000)}, "200,001 bits in a key"),
    "a namespace without a hash": ({"namespace": "[1]"}, "cannot be a key: unhashable"),
    "a value that needs more memory than there is": ({"value": savepoint_text(DEEP)}, "nested more than 1000 levels"),
    "a key that holds itself": ({"key": savepoint_text(CYCLE)}, "nested too deeply"),
    "a value of no known opcode": ({"value": '{"$pickle": "gAUB"}'}, "opcode"),
    "a value whose making fails": ({"value": savepoint_text(called("datetime:date", b"1"))}, "is not a value"),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_a_bad_row_is_counted_and_named_and_the_others_are_read(case: str) -> None:
    bad, message = BAD_TEXTS[case]
    for changed in (False, True):
        checked = RowReader(ProgramStates({}), {}, convert=changed)
        rows = [row(number, key=f"k{number}") for number in range(3)]
        rows[1] = rows[1]._replace(**bad)
        columns = SavepointColumns("a", "s", "value", *map(list, zip(*(each[3:] for each in rows))))
        assert checked.read_columns(columns).values == [0, 2]
        (found,) = checked.found.values()
        assert (found.rows, found.bad_rows) == (3, 1)
        assert found.problem.startswith(f"the row of key {rows[1].key[:100]}: ")
        assert re.search(message, found.problem)


@pytest.mark.parametrize("kind", ["value", "map"])
def test_rows_whose_keys_have_one_hash_are_bad_if_there_are_many(kind: str) -> None:
    """Each of them would be compared with all others: 100,000 such rows took minutes."""
    crowd = [(2**61 - 1) * factor for factor in range(1, 3_000)]
    plain = [3, "a", (1, 2)]
    if kind == "value":
        rows = [row(1, key=key) for key in (*crowd, *plain)]
    else:
        rows = [row((key, 1), "map") for key in (*crowd, *plain)]
    columns = SavepointColumns("a", "s", kind, *map(list, zip(*(each[3:] for each in rows))))
    checked = RowReader(ProgramStates({}), {}, convert=False)
    read = checked.read_columns(columns)
    assert len(read.keys) == len(plain)
    (found,) = checked.found.values()
    assert (found.rows, found.bad_rows) == (len(rows), len(crowd))
    assert "over 256 keys have one hash" in found.problem


def test_many_rows_of_one_key_are_no_crowd() -> None:
    rows = [row((number, 1), "map", key=(1, 2)) for number in range(1_000)]
    columns = SavepointColumns("a", "s", "map", *map(list, zip(*(each[3:] for each in rows))))
    assert len(RowReader(ProgramStates({}), {}, convert=False).read_columns(columns).keys) == 1_000
