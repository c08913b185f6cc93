"""The text of values by their declared type, compared with what a real Java has written (`java_texts`)."""

from __future__ import annotations

import datetime
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flinkish.common import Row, RowKind, Types
from flinkish.common.text import PRINT_ROW_SEPARATOR, text_writer
from flinkish.common.time import Instant
from flinkish.common.typeinfo import ExternalTypeInfo, TypeInformation
from flinkish.common.typeinfo.temporal import LocalTimeTypeInfo
from tests.support.java_texts import TABLE, sample, texts_of_java

_Time = LocalTimeTypeInfo.TimeType


def instant_of(text: str) -> Instant:
    seconds, nanos = text.split()
    return Instant(int(seconds), int(nanos))


#: kind -> (its type, what reads a value of the table)
KINDS: dict[str, tuple[TypeInformation, Callable[[str], Any]]] = {
    "DOUBLE": (Types.DOUBLE(), lambda text: struct.unpack(">d", bytes.fromhex(text))[0]),
    "FLOAT": (Types.FLOAT(), lambda text: struct.unpack(">f", bytes.fromhex(text))[0]),
    "BIG_DEC": (Types.BIG_DEC(), Decimal),
    "SQL_DATE": (Types.SQL_DATE(), datetime.date.fromisoformat),
    "SQL_TIME": (Types.SQL_TIME(), datetime.time.fromisoformat),
    "SQL_TIMESTAMP": (Types.SQL_TIMESTAMP(), datetime.datetime.fromisoformat),
    "LOCAL_DATE": (LocalTimeTypeInfo(_Time.LOCAL_DATE), datetime.date.fromisoformat),
    "LOCAL_TIME": (LocalTimeTypeInfo(_Time.LOCAL_TIME), datetime.time.fromisoformat),
    "LOCAL_DATE_TIME": (LocalTimeTypeInfo(_Time.LOCAL_DATE_TIME), datetime.datetime.fromisoformat),
    "INSTANT": (Types.INSTANT(), instant_of),
}


def digits_of(text: str) -> int:
    return len(re.sub(r"E.*|\D", "", text).strip("0")) or 1


def is_worse_text_of(value: Any, theirs: str, ours: str, kind: str) -> bool:
    """Whether a text of a Java before 19 has more digits than ours, or is farther from the value, and is read as it."""
    read = float(theirs) if kind == "DOUBLE" else struct.unpack("<f", struct.pack("<f", float(theirs)))[0]
    farther = abs(Decimal(theirs) - Decimal(value)) > abs(Decimal(ours) - Decimal(value))
    return read == value and (digits_of(theirs) > digits_of(ours) or farther)


def differences(version: str, rows: list[tuple[str, str, str]]) -> list[str]:
    """The texts that are not Java's; faults of a Java before 19 count as its own text."""
    found = []
    for kind, text, theirs in rows:
        declared, read = KINDS[kind]
        value = read(text)
        ours = text_writer(declared)(value)
        if ours == theirs:
            continue
        old = int(version.partition(".")[0]) < 19 and kind in ("DOUBLE", "FLOAT")
        if not (old and is_worse_text_of(value, theirs, ours, kind)):
            found.append(f"{kind} {text}: {ours}, Java writes {theirs}")
    return found


def test_texts_are_those_of_a_real_java() -> None:
    version, *lines = TABLE.read_text().splitlines()
    rows = [tuple(line.split("\t")) for line in lines]
    assert len(rows) > 3_000 and {row[0] for row in rows} == set(KINDS)
    assert differences(version.removeprefix("Java "), rows) == []  # type: ignore[arg-type]
    faults = sum(text_writer(KINDS[kind][0])(KINDS[kind][1](text)) != theirs for kind, text, theirs in rows)  # type: ignore[misc]
    assert faults < len(rows) / 20


@pytest.mark.slow
def test_texts_are_those_of_the_java_of_this_machine() -> None:
    values = list(sample(datetime.date.today().toordinal(), 4_000))
    version, texts = texts_of_java(values)
    assert differences(version, [(*value, text) for value, text in zip(values, texts, strict=True)]) == []


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(2e-323)
@example(9.999999999999999e22)
def test_a_double_is_read_back_from_its_text(value: float) -> None:
    text = text_writer(Types.DOUBLE())(value)
    assert re.fullmatch(r"-?\d+\.\d+(E-?\d+)?", text)
    assert float(text) == value and math.copysign(1, float(text)) == math.copysign(1, value)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(2.0**-44)
@example(1.401298464324817e-45)
def test_a_float_is_read_back_from_its_text_and_no_shorter_one_would_do(value: float) -> None:
    text = text_writer(Types.FLOAT())(value)
    assert re.fullmatch(r"-?\d+\.\d+(E-?\d+)?", text)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    for digits in range(1, digits_of(text) - 1):
        shorter = f"{value:.{digits - 1}e}"
        assert abs(float(shorter)) > 3.4e38 or struct.pack("<f", float(shorter)) != struct.pack("<f", value)


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        (Types.FLOAT(), 0.10000000149011612, "0.1"),
        (Types.BOOLEAN(), True, "true"),
        (Types.INT(), -5, "-5"),
        (Types.STRING(), "a 'b'", "a 'b'"),
        (Types.STRING(), None, "null"),
        (Types.TUPLE([Types.STRING(), Types.FLOAT()]), ("a", 1e10), "(a,1.0E10)"),
        (Types.ROW([Types.BOOLEAN(), Types.STRING(), Types.DOUBLE()]), Row(True, None, 1.0), "+I[true, null, 1.0]"),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row.of_kind(RowKind.DELETE, 1), "-D[1]"),
        (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), {"a": [1], "b": None}, "{a=[1], b=null}"),
        (Types.LIST(Types.TUPLE([Types.INT(), Types.STRING()])), [(1, "a"), None], "[(1,a), null]"),
        (Types.OBJECT_ARRAY(Types.ROW([Types.INT()])), [Row(1)], "[+I[1]]"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"a\xff", "[97, -1]"),
        (Types.PRIMITIVE_ARRAY(Types.FLOAT()), [0.5], "[0.5]"),
        (Types.BASIC_ARRAY(Types.BOOLEAN()), [True, None], "[true, null]"),
        (ExternalTypeInfo(Types.LIST(ExternalTypeInfo(Types.BOOLEAN()))), [True], "[true]"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2020, 1, 2, 3, 4, 5, 600_000), "2020-01-02 03:04:05.6"),
        (Types.ROW([Types.PICKLED_BYTE_ARRAY()]), Row({"a": None}), "+I[{'a': None}]"),
        (Types.PICKLED_BYTE_ARRAY(), (True, None), "(True, None)"),
    ],
    ids=str,
)
def test_the_declared_type_decides_on_the_text(declared: TypeInformation, value: Any, text: str) -> None:
    assert text_writer(declared)(value) == text
    if not isinstance(value, Row):
        assert text_writer(declared, PRINT_ROW_SEPARATOR)(value) == text
    if declared != Types.PICKLED_BYTE_ARRAY():
        shown = "null" if value is None else text
        assert text_writer(Types.TUPLE([declared]), PRINT_ROW_SEPARATOR)((value,)) == f"({shown})"


def test_a_timestamp_with_a_zone_is_written_in_the_local_one() -> None:
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=5)))
    local = at.astimezone().replace(tzinfo=None)
    assert text_writer(Types.SQL_TIMESTAMP())(at) == f"{local}.0"
