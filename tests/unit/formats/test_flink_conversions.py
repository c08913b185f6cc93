"""Flink's tables of conversions of JSON and CSV, cell by cell: what Flink 2.3 reads from a text under a type, what it
refuses, and what it writes. A field that is refused is None if parse errors are ignored, and its record is kept."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pytest

from flinkish.common import Instant, Row, TypeInformation, Types
from flinkish.common.typeinfo import LocalTimeTypeInfo
from flinkish.errors import ArgumentTypeError, MalformedRecordError, TypeMismatchError
from flinkish.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from flinkish.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from tests.support.rows import hold

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
LOCAL_DATE, LOCAL_TIME, LOCAL_TIMESTAMP = map(LocalTimeTypeInfo, LocalTimeTypeInfo.TimeType)
INNER = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])
INF = math.inf


def day(*parts: int) -> datetime.date:
    return datetime.date(*parts)


def clock(*parts: int) -> datetime.time:
    return datetime.time(*parts)


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type]


def cases(table: list[tuple[TypeInformation, dict[str, Any], list[str]]]) -> list[tuple[Any, ...]]:
    """One case per cell; the value is a one-tuple, or None if the text is refused."""
    return [
        (kind, text, value)
        for kind, values, refused in table
        for text, value in [*((text, (value,)) for text, value in values.items()), *((text, None) for text in refused)]
    ]


def same(found: Any, expected: Any) -> bool:
    """Whether the values have one type and one text, so that 1.50 is not 1.5 and -0.0 not 0.0."""
    return type(found) is type(expected) and repr(found) == repr(expected)


# ---- JSON: the type, {text of the node: value}, [texts of nodes that are refused]

TEXTS_OF_WHOLE_NUMBERS = {"5": 5, '"5"': 5, '" 7 "': 7, '"+5"': 5, "-1": -1, "-0": 0}
NO_WHOLE_NUMBERS = ['"1.5"', '"1_0"', '""', '"abc"', "true", "[1]", "{}", '"0x10"', "1e400", '"1e3"', '"\u00a07"']
NO_TIMES = ["5", "true", '""', '"x"', "[]", "{}"]
TIMESTAMPS = {
    '"2019-11-12T18:00:12Z"': at(2019, 11, 12, 18, 0, 12),
    '"2019-11-12T18:00:12.6Z"': at(2019, 11, 12, 18, 0, 12, 600_000),
    '"2019-11-12T18:00:12.123456789Z"': at(2019, 11, 12, 18, 0, 12, 123_456),
    '"2019-11-12T24:00:00Z"': at(2019, 11, 13),
    '"2019-02-30T18:00:12Z"': at(2019, 2, 28, 18, 0, 12),
}
NO_TIMESTAMPS = [
    '"2019-11-12 18:00:12"',
    '"2019-11-12T18:00:12"',
    '"2019-11-12T18:00:12+00:00"',
    '"2019-11-12T18:00:12+01:00"',
    '"2019-11-12t18:00:12Z"',
    '"2019-11-12T18:00Z"',
    '"2019-11-12T18:60:00Z"',
    '"2019-11-32T18:00:00Z"',
    '"2019-11-12T24:00:00.5Z"',
    '"20191112T180012Z"',
    '"2019-11-12"',
    '" 2019-11-12T18:00:12Z"',
]
JSON = [
    (
        Types.BOOLEAN(),
        {"true": True, "false": False, '"TRUE"': True, '" true "': True}
        | dict.fromkeys(['"trueA"', '"1"', "1", "1.5", '""', "[true]", "{}", '"yes"'], False),
        [],
    ),
    (
        Types.STRING(),
        {
            "true": "true",
            "5": "5",
            "1.50": "1.5",
            "1e2": "100.0",
            "1e-7": "1.0E-7",
            '"x"': "x",
            "12345678.9": "1.23456789E7",
        }
        | {
            "[1, 2.50, null]": "[1,2.5,null]",
            '{"k": [true, 1e10, "\u00e9"]}': '{"k":[true,1.0E10,"\u00e9"]}',
            "1e400": "Infinity",
        },
        [],
    ),
    (Types.BYTE(), {**TEXTS_OF_WHOLE_NUMBERS, "127": 127}, [*NO_WHOLE_NUMBERS, "128", "1.5", "1.0"]),
    (Types.SHORT(), {**TEXTS_OF_WHOLE_NUMBERS, "32767": 32767}, [*NO_WHOLE_NUMBERS, "32768", "1.5", "1.0"]),
    (
        Types.INT(),
        {**TEXTS_OF_WHOLE_NUMBERS, "1.5": 1, "-1.5": -1, "112.013": 112, "1e2": 100, "2147483647": 2**31 - 1},
        [*NO_WHOLE_NUMBERS, "2147483648", "2147483647.5", '"2147483648"'],
    ),
    (
        Types.LONG(),
        {**TEXTS_OF_WHOLE_NUMBERS, "1.5": 1, "112.013": 112, "9223372036854775807.5": 2**63 - 1},
        [*NO_WHOLE_NUMBERS, "9223372036854775808", "1e19"],
    ),
    (
        Types.BIG_INT(),
        {**TEXTS_OF_WHOLE_NUMBERS, "123456789012345678901": 123456789012345678901},
        [*NO_WHOLE_NUMBERS, "1.0"],
    ),
    (
        Types.DOUBLE(),
        {
            "1": 1.0,
            "1.50": 1.5,
            "-0.0": -0.0,
            "1e400": INF,
            '"1.5"': 1.5,
            '" 1 "': 1.0,
            '"1d"': 1.0,
            '".5F"': 0.5,
            '"5."': 5.0,
        }
        | {'"0x1p3"': 8.0, '"NaN"': math.nan, '"-Infinity"': -INF, '"1e400"': INF, "1" + "0" * 400: INF},
        ['"nan"', '"inf"', '"infinity"', '"1_0"', '""', '"1,5"', '"112.013.123"', "true", "[]", '"--1"', '"1e"'],
    ),
    (
        Types.FLOAT(),
        {"1": 1.0, "1.5": 1.5, "1e39": INF, '"1.5f"': 1.5, '"NaN"': math.nan},
        ['"nan"', '"112.013.123"', "true", '""', "[]"],
    ),
    (
        Types.BIG_DEC(),
        {"1.5": Decimal("1.5"), "1.50": Decimal("1.5"), "10.0": Decimal("1E+1"), "100": Decimal(100), "0.0": Decimal(0)}
        | {"0.1234567890123456789012": Decimal("0.1234567890123456789012"), "1e400": Decimal("1E+400")}
        | {'"1.50"': Decimal("1.50"), '" 7 "': Decimal(7), '"1e3"': Decimal("1E+3")},
        ['"abc"', '"NaN"', '"1_0"', '""', "true", "[]"],
    ),
    (
        Types.SQL_DATE(),
        {'"2019-11-12"': day(2019, 11, 12)},
        ['"20191112"', '"2019-W46-2"', '"2019-1-2"', '"2019-02-30"', '" 2019-11-12"', '"2019-11-12T"', *NO_TIMES],
    ),
    (LOCAL_DATE, {'"2019-11-12"': day(2019, 11, 12)}, ['"20191112"', '"2019-W46-2"', *NO_TIMES]),
    *(
        (
            kind,
            {'"12:43:01Z"': clock(12, 43, 1), '"12:43:01.0Z"': clock(12, 43, 1), '"24:00:00Z"': clock(0)},
            ['"12:43:01"', '"12:43:01.5Z"', '"12:43Z"', '"12:43:01+00:00"', '"18:00:243"', '"25:00:00Z"', *NO_TIMES],
        )
        for kind in (Types.SQL_TIME(), LOCAL_TIME)
    ),
    *((kind, TIMESTAMPS, NO_TIMESTAMPS + NO_TIMES) for kind in (Types.SQL_TIMESTAMP(), LOCAL_TIMESTAMP)),
    (
        Types.INSTANT(),
        {'"1970-01-01T00:00:02.123456789Z"': Instant(2, 123_456_789), '"1970-01-01T01:00:02+01:00"': Instant(2, 0)}
        | {"2": Instant(2, 0), "1.5": Instant(1, 500_000_000), '"1969-12-31T23:59:59.5Z"': Instant(-1, 500_000_000)},
        ['"1970-01-01T00:00:02"', '"1970-01-01 00:00:02Z"', '"x"', "true", "[]"],
    ),
    (
        BYTES,
        {'"aGk="': b"hi", '""': b"", '" aGk="': b"hi"} | dict.fromkeys(["1", "true", "[]", "{}"]),
        ['"aGk"', '"a!"'],
    ),
    (
        Types.OBJECT_ARRAY(Types.INT()),
        {"[]": [], "[1, null, 2.5]": [1, None, 2]},
        ["1", '"x"', "{}", "true"],
    ),
    (
        Types.MAP(Types.STRING(), Types.INT()),
        {'{"k": 1.5, "n": null}': {"k": 1, "n": None}, "5": {}, '"x"': {}, "[1]": {}},
        [],
    ),
    (
        Types.MAP(Types.INT(), Types.STRING()),
        {'{"5": "x", " 7 ": null}': {5: "x", 7: None}, "{}": {}},
        [],
    ),
    (Types.MAP(Types.BOOLEAN(), Types.INT()), {'{"true": 1, "x": 2}': {True: 1, False: 2}}, []),
    (Types.MAP(Types.SQL_DATE(), Types.INT()), {'{"2019-11-12": 1}': {day(2019, 11, 12): 1}}, []),
    (INNER, {'{"b": 1.5}': Row(a=None, b=1), "{}": Row(a=None, b=None)}, ["1", '"x"', "[]", "true"]),
]


def reads_json(kind: TypeInformation, text: str, value: tuple[Any] | None) -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["x", "after"], [kind, Types.INT()]))
    message = f'{{"x": {text}, "after": 1}}'.encode()
    if value is None:
        with pytest.raises(MalformedRecordError, match="field 'x'"):
            builder.build().deserialize(message)
    else:
        assert same(builder.build().deserialize(message).x, value[0])
    # no record is lost because one of its fields cannot be read
    kept = builder.ignore_parse_errors().build().deserialize(message)
    assert same(kept.x, None if value is None else value[0]) and kept.after == 1


def test_json_is_read_as_flink_reads_it() -> None:
    hold(reads_json, cases(JSON))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Types.OBJECT_ARRAY(Types.INT()), '[1, "x", null]', [1, None, None]),
        (Types.MAP(Types.STRING(), Types.INT()), '{"k": "x", "j": 1}', {"k": None, "j": 1}),
        (Types.MAP(Types.INT(), Types.STRING()), '{"1.5": "y", "2": "z"}', {None: "y", 2: "z"}),
        (Types.MAP(Types.SQL_DATE(), Types.INT()), '{"20191112": 1}', {None: 1}),
        (INNER, '{"a": "y", "b": "x"}', Row(a="y", b=None)),
        (Types.OBJECT_ARRAY(INNER), '[{"b": "x", "a": 1}, 5]', [Row(a="1", b=None), None]),
    ],
)
def test_only_the_part_of_a_field_that_cannot_be_read_is_none_in_json(
    kind: TypeInformation, text: str, value: Any
) -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["x"], [kind]))
    with pytest.raises(MalformedRecordError):
        builder.build().deserialize(f'{{"x": {text}}}'.encode())
    assert builder.ignore_parse_errors().build().deserialize(f'{{"x": {text}}}'.encode()) == Row(x=value)


def test_numbers_beside_a_big_dec_are_exact_and_without_zeros_at_their_ends() -> None:
    kinds = [Types.BIG_DEC(), Types.STRING(), Types.INT(), Types.LONG(), Types.DOUBLE(), Types.SHORT()]
    names = ["x", "s", "i", "l", "d", "h"]
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(names, kinds)).build()
    row = schema.deserialize(b'{"x": 1.50, "s": [10.0, 1e400], "i": 1.5, "l": 112.013, "d": 1.50, "h": 1.0}')
    assert list(map(str, row)) == ["1.5", "[1E+1,1E+400]", "1", "112", "1.5", "1"]


@pytest.mark.parametrize(
    ("message", "record"),
    [
        (b'{"n": 1} and more', Row(n=1)),
        (b'{"n": 1}{"n": 2}', Row(n=1)),
        (b' \r\n\t{"n": 1}\n', Row(n=1)),
        (b'{"n": 1, "n": 2}', Row(n=2)),
        (b"null", None),
    ],
)
def test_a_json_message_is_its_first_value(message: bytes, record: Row | None) -> None:
    kind = Types.ROW_NAMED(["n"], [Types.INT()])
    assert JsonRowDeserializationSchema.builder().type_info(kind).build().deserialize(message) == record


@pytest.mark.parametrize(
    "message", [b"", b" ", b"[]", b"3", b'"s"', b"{", b'{"n":1,}', b'{"n":NaN}', b"\xff", b'{"n":01}']
)
def test_what_is_no_json_object_gives_no_record_if_parse_errors_are_ignored(message: bytes) -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.INT()]))
    with pytest.raises(MalformedRecordError):
        builder.build().deserialize(message)
    assert builder.ignore_parse_errors().build().deserialize(message) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Types.INT(), "1.5"),
        (Types.LONG(), "112.013"),
        (Types.BOOLEAN(), '"trueA"'),
        (Types.BOOLEAN(), "1"),
        (BYTES, "5"),
        (Types.MAP(Types.STRING(), Types.INT()), "5"),
        (Types.OBJECT_ARRAY(Types.INT()), "[1.5]"),
        (Types.INT(), '1} {"x": 2'),
    ],
)
def test_strict_json_refuses_what_flink_would_change(kind: TypeInformation, text: str) -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["x"], [kind])).strict()
    with pytest.raises(MalformedRecordError):
        builder.build().deserialize(f'{{"x": {text}}}'.encode())
    exact = {"a": (Types.INT(), "2.0", 2), "b": (Types.BOOLEAN(), '"TRUE"', True)}
    schema = builder.type_info(Types.ROW_NAMED(list(exact), [kind for kind, _, _ in exact.values()])).build()
    assert schema.deserialize(b'{"a": 2.0, "b": "TRUE"}') == Row(a=2, b=True)


JSON_WRITTEN = [
    (Types.DOUBLE(), {0.1: "0.1", 1e10: "1.0E10", 1e7: "1.0E7", 1e-4: "1.0E-4", 123456.75: "123456.75", -5.5: "-5.5"}),
    (Types.DOUBLE(), {math.nan: '"NaN"', -INF: '"-Infinity"', 0.0: "0.0"}),
    (Types.FLOAT(), {0.5: "0.5", 1e10: "1.0E10", INF: '"Infinity"'}),
    (Types.BIG_DEC(), {Decimal("1.50"): "1.50", Decimal("1E+3"): "1E+3"}),
    (Types.SQL_DATE(), {day(1, 1, 1): '"0001-01-01"'}),
    (Types.SQL_TIME(), {clock(12, 12): '"12:12:00Z"', clock(12, 12, 12, 500_000): '"12:12:12Z"'}),
    (LOCAL_TIME, {clock(12, 12): '"12:12:00Z"', clock(12, 12, 12, 600_000): '"12:12:12.6Z"'}),
    *(
        (
            kind,
            {
                at(2018, 10, 12): '"2018-10-12T00:00:00Z"',
                at(2018, 10, 12, 12, 12, 12, 600_000): '"2018-10-12T12:12:12.6Z"',
                at(2018, 10, 12, 12, 12, 12, 1): '"2018-10-12T12:12:12.000001Z"',
            },
        )
        for kind in (Types.SQL_TIMESTAMP(), LOCAL_TIMESTAMP)
    ),
    (
        Types.INSTANT(),
        {
            Instant(2, 0): '"1970-01-01T00:00:02Z"',
            Instant(2, 600_000_000): '"1970-01-01T00:00:02.600Z"',
            Instant(-1, 123_456_789): '"1969-12-31T23:59:59.123456789Z"',
        },
    ),
    (BYTES, {b"hi": '"aGk="'}),
]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (Types.STRING(), 'a"', '"a\\""'),
        (Types.INT(), 5, '"5"'),
        (Types.BOOLEAN(), True, '"true"'),
        (Types.DOUBLE(), 1e10, '"1.0E10"'),
        (Types.BIG_DEC(), Decimal("1.50"), '"1.50"'),
        (LOCAL_DATE, day(2019, 11, 12), '"2019-11-12"'),
    ],
)
def test_the_keys_of_a_map_are_names_in_json(key: TypeInformation, value: Any, text: str) -> None:
    kind = Types.ROW_NAMED(["x"], [Types.MAP(key, Types.INT())])
    message = JsonRowSerializationSchema.builder().with_type_info(kind).build().serialize(Row(x={value: 1}))
    assert message == f'{{"x":{{{text}:1}}}}'.encode()
    assert JsonRowDeserializationSchema.builder().type_info(kind).build().deserialize(message) == Row(x={value: 1})


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        pytest.param(kind, value, text, id=ascii(f"{kind!r} {text}"))
        for kind, texts in JSON_WRITTEN
        for value, text in texts.items()
    ],
)
def test_json_is_written_as_flink_writes_it(kind: TypeInformation, value: Any, text: str) -> None:
    schema = JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(["x"], [kind])).build()
    message = schema.serialize(Row(value))
    assert message == f'{{"x":{text}}}'.encode()
    json.loads(message)


# ---- CSV: the type, {text of the field: value}, [texts of fields that are refused]

WHOLE_FIELDS = {"5": 5, " 7 ": 7, "+5": 5, "007": 7, "-0": 0}
NO_WHOLE_FIELDS = ["1.5", "1.0", "1_0", "", "abc", "1e3", "0x10", "null", "true"]
CSV_TIMESTAMPS = {
    "2018-10-12 12:12:12.0": at(2018, 10, 12, 12, 12, 12),
    "2018-10-12 12:12:12": at(2018, 10, 12, 12, 12, 12),
    " 2018-1-2 1:2:3.6 ": at(2018, 1, 2, 1, 2, 3, 600_000),
    "2018-10-12 12:12:12.123456789": at(2018, 10, 12, 12, 12, 12, 123_456),
    "2018-02-30 24:00:00": at(2018, 3, 3),
}
NO_CSV_TIMESTAMPS = [
    "2018-10-12T12:12:12",
    "2018-10-12",
    "2018-10-12 12:12",
    "2018-10-12 12:12:12Z",
    "2018-10-12 12:12:12.",
]
CSV = [
    (
        Types.STRING(),
        {"x": "x", " x ": " x ", "": "", '"a,b"': "a,b", '"a""b"': 'a"b', 'a"b': 'a"b', 'a""b': 'a""b'},
        [],
    ),
    (
        Types.BOOLEAN(),
        {"true": True, " TRUE ": True} | dict.fromkeys(["false", "trueA", "1", "yes", ""], False),
        [],
    ),
    (Types.BYTE(), {**WHOLE_FIELDS, "127": 127}, [*NO_WHOLE_FIELDS, "128"]),
    (Types.SHORT(), {**WHOLE_FIELDS, "32767": 32767}, [*NO_WHOLE_FIELDS, "32768"]),
    (Types.INT(), {**WHOLE_FIELDS, "-2147483648": -(2**31)}, [*NO_WHOLE_FIELDS, "2147483648"]),
    (Types.LONG(), {**WHOLE_FIELDS, "9223372036854775807": 2**63 - 1}, [*NO_WHOLE_FIELDS, "9223372036854775808"]),
    (Types.BIG_INT(), {**WHOLE_FIELDS, "123456789012345678901": 123456789012345678901}, NO_WHOLE_FIELDS),
    (
        Types.DOUBLE(),
        {
            "1": 1.0,
            " 1 ": 1.0,
            "1d": 1.0,
            "1.5F": 1.5,
            "0x1p3": 8.0,
            "1e400": INF,
            ".5": 0.5,
            "5.": 5.0,
            "+NaN": math.nan,
        },
        ["nan", "inf", "infinity", "1_0", "", "1e", "--1", "0x1p"],
    ),
    (Types.FLOAT(), {"1.5": 1.5, "1e39": INF}, ["nan", ""]),
    (
        Types.BIG_DEC(),
        {"1.50": Decimal("1.50"), " 1 ": Decimal(1), "1e3": Decimal("1E+3"), ".5": Decimal("0.5")},
        ["NaN", "1_0", "", "1d", "0x1"],
    ),
    *(
        (
            kind,
            {"2019-11-12": day(2019, 11, 12), "2019-1-2": day(2019, 1, 2), "2019-02-30": day(2019, 3, 2)},
            ["20191112", "2019-W46-2", "2019-13-01", "2019-11-32", " 2019-11-12", "19-11-12", ""],
        )
        for kind in (Types.SQL_DATE(), LOCAL_DATE)
    ),
    *(
        (
            kind,
            {"12:12:12": clock(12, 12, 12), "1:2:3": clock(1, 2, 3), "12:60:00": clock(13), "25:00:00": clock(1)},
            ["12:12", "12:12:12.5", "12:12:12Z", " 12:12:12", ""],
        )
        for kind in (Types.SQL_TIME(), LOCAL_TIME)
    ),
    *((kind, CSV_TIMESTAMPS, NO_CSV_TIMESTAMPS) for kind in (Types.SQL_TIMESTAMP(), LOCAL_TIMESTAMP)),
    (
        Types.INSTANT(),
        {"1970-01-01 00:00:02.123456789Z": Instant(2, 123_456_789), "1970-01-01 24:00:00Z": Instant(86_400, 0)},
        ["1970-01-01T00:00:02Z", "1970-01-01 00:00:02", "1970-01-01 00:00:02+01:00", ""],
    ),
    (BYTES, {"aGk=": b"hi", " aGk=": b"hi", "": b""}, ["aGk", "a!", "aG k="]),
    (Types.OBJECT_ARRAY(Types.STRING()), {"a;b": ["a", "b"], "": [], ";": ["", ""], '"a;b"': ["a", "b"]}, []),
    (Types.OBJECT_ARRAY(Types.INT()), {"1; 2 ": [1, 2]}, []),
    (INNER, {"a;1": Row(a="a", b=1), '"a;1"': Row(a="a", b=1), "": None}, []),
]


def reads_csv(kind: TypeInformation, text: str, value: tuple[Any] | None) -> None:
    builder = CsvRowDeserializationSchema.Builder(Types.ROW_NAMED(["x", "after"], [kind, Types.INT()]))
    message = f"{text},1\n".encode()
    if value is None:
        with pytest.raises(MalformedRecordError, match="field 'x'"):
            builder.build().deserialize(message)
    else:
        assert same(builder.build().deserialize(message).x, value[0])
    kept = builder.set_ignore_parse_errors(True).build().deserialize(message)
    assert same(kept.x, None if value is None else value[0]) and kept.after == 1


def test_csv_is_read_as_flink_reads_it() -> None:
    hold(reads_csv, cases(CSV))


LINE = Types.ROW_NAMED(["a", "n", "b"], [Types.STRING(), Types.INT(), Types.STRING()])
NESTED = Types.ROW_NAMED(["r", "l"], [INNER, Types.OBJECT_ARRAY(Types.INT())])


@pytest.mark.parametrize(
    ("kind", "line", "strictly", "kept"),
    [
        (LINE, b"x,1,y", ("x", 1, "y"), ("x", 1, "y")),
        (LINE, b"x,1,y,", ("x", 1, "y"), ("x", 1, "y")),
        (LINE, b"x,1,y\r\nu,2,v", ("x", 1, "y"), ("x", 1, "y")),
        (LINE, b'"x" , 1 ,y', ("x", 1, "y"), ("x", 1, "y")),
        (LINE, b"x,1", None, ("x", 1, None)),
        (LINE, b"x", None, ("x", None, None)),
        (LINE, b"\n", None, ("", None, None)),
        (LINE, b"x,one,y", None, ("x", None, "y")),
        (LINE, b"x,,y", None, ("x", None, "y")),
        (LINE, b"", None, None),
        (LINE, b"x,1,y,z", None, None),
        (LINE, b'"x,1,y', None, None),
        (LINE, b'"x"z,1,y', None, None),
        (LINE, b"\xff,1,y", None, None),
        (NESTED, b"a;x,1;x", None, (Row(a="a", b=None), [1, None])),
        (NESTED, b"a,1", None, (Row(a="a", b=None), [1])),
        (NESTED, b"a;1;2,1;;2", None, (Row(a="a", b=1), [1, None, 2])),
    ],
)
def test_csv_lines_are_fitted_as_flink_fits_them(
    kind: TypeInformation, line: bytes, strictly: tuple[Any, ...] | None, kept: tuple[Any, ...] | None
) -> None:
    builder = CsvRowDeserializationSchema.Builder(kind)
    if strictly is None:
        with pytest.raises(MalformedRecordError):
            builder.build().deserialize(line)
    else:
        assert tuple(builder.build().deserialize(line)) == strictly
    row = builder.set_ignore_parse_errors(True).build().deserialize(line)
    assert (row if row is None else tuple(row)) == kept


@pytest.mark.parametrize("line", [b"x,yes,", b"x,1,y\nu,2,v", b"x,true,", b"x,true\nu,true"])
def test_strict_csv_refuses_what_flink_reads_although_it_does_not_fit(line: bytes) -> None:
    kind = Types.ROW_NAMED(["a", "t"], [Types.STRING(), Types.BOOLEAN()])
    strict = CsvRowDeserializationSchema.Builder(kind).set_strict(True).build()
    with pytest.raises(MalformedRecordError):
        strict.deserialize(line)
    assert strict.deserialize(b"x,true\r\n") == Row(a="x", t=True)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (b"a*,b,*#,1", ("a,b", "#", "1")),
        (b"'a*'b','x''y',z**", ("a'b", "x'y", "z*")),
        (b"a*nb,*t*r,*q", ("a\nb", "\t\r", "q")),
    ],
)
def test_escape_characters_are_read_as_jackson_reads_them(line: bytes, fields: tuple[str, ...]) -> None:
    builder = CsvRowDeserializationSchema.Builder(Types.ROW([Types.STRING()] * 3))
    schema = builder.set_escape_character("*").set_quote_character("'").build()
    assert tuple(schema.deserialize(line)) == fields


CSV_WRITTEN = [
    (Types.STRING(), {text: text for text in ["a", "", "a;b", "a-b", "a.b/c:d", "\u00e9", "a|b", "null", "x" * 24]}),
    (
        Types.STRING(),
        {text: f'"{text}"' for text in ["a b", "a,b", "#", "a'b", "a+b", "(a)", "$5", "\t", "a\\b", "x" * 25]},
    ),
    (Types.STRING(), {'a"b': '"a""b"', "a\nb": '"a\nb"'}),
    (Types.BOOLEAN(), {True: "true", False: "false"}),
    (Types.DOUBLE(), {0.1: "0.1", 1e10: "1.0E10", math.nan: "NaN", -INF: "-Infinity"}),
    (
        Types.BIG_DEC(),
        {Decimal("1.50"): "1.50", Decimal("1234.0000000000000000000000001"): "1234.0000000000000000000000001"},
    ),
    (Types.SQL_DATE(), {day(2018, 10, 12): "2018-10-12"}),
    (Types.SQL_TIME(), {clock(12, 12, 12): "12:12:12", clock(12, 12, 0, 5): "12:12:00"}),
    (LOCAL_TIME, {clock(12, 12, 12): "12:12:12"}),
    (Types.SQL_TIMESTAMP(), {at(2018, 10, 12, 12, 12, 12): '"2018-10-12 12:12:12.0"'}),
    (Types.SQL_TIMESTAMP(), {at(2018, 10, 12, 12, 12, 12, 600_000): '"2018-10-12 12:12:12.6"'}),
    (LOCAL_TIMESTAMP, {at(2018, 10, 12, 12, 12): '"2018-10-12 12:12:00"'}),
    (
        Types.INSTANT(),
        {Instant(2, 123_456_789): '"1970-01-01 00:00:02.123456789Z"', Instant(2, 0): '"1970-01-01 00:00:02Z"'},
    ),
    (BYTES, {b"hi": "aGk=", b"\xfb": '"+w=="'}),
    (
        Types.OBJECT_ARRAY(Types.STRING()),
        {("a", "b"): "a;b", ("a b",): '"a b"', ("a", None): "a;", (): "", ("a;b",): "a;b"},
    ),
    (INNER, {("Hello", 42): "Hello;42", (None, None): ";"}),
]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        pytest.param(
            kind, list(value) if isinstance(value, tuple) and kind is not INNER else value, text, id=ascii(text)
        )
        for kind, texts in CSV_WRITTEN
        for value, text in texts.items()
    ],
)
def test_csv_is_written_with_the_quotes_of_jackson(kind: TypeInformation, value: Any, text: str) -> None:
    schema = CsvRowSerializationSchema.Builder(Types.ROW_NAMED(["x", "after"], [kind, Types.INT()])).build()
    assert schema.serialize(Row(value, 1)) == f"{text},1\n".encode()


@pytest.mark.parametrize(
    ("settings", "text", "line"),
    [
        ({"set_field_delimiter": "|"}, "a b", '"a b"'),
        ({"set_field_delimiter": "|"}, "abc", '"abc"'),
        ({"set_field_delimiter": "\t"}, "a,b#", "a,b#"),
        ({"set_quote_character": "'"}, "a'b c", "'a''b c'"),
        ({"set_escape_character": "*", "set_quote_character": "'"}, "a*b", "'a**b'"),
        ({"set_escape_character": "*"}, "a\\b", "a\\b"),
        ({"set_null_literal": "n/a"}, None, "n/a"),
        ({"set_null_literal": "a, b"}, None, "a, b"),
        ({"disable_quote_character": None}, 'a,b"', 'a,b"'),
        ({"disable_quote_character": None, "set_escape_character": "*"}, "a,b*", "a,b*"),
        ({"set_line_delimiter": "\r\n"}, "a", "a\r\n"),
        ({"set_line_delimiter": ""}, "a", "a"),
    ],
    ids=ascii,
)
def test_the_dialect_decides_on_quotes_as_in_jackson(settings: dict[str, Any], text: str | None, line: str) -> None:
    builder = CsvRowSerializationSchema.Builder(Types.ROW([Types.STRING()]))
    for name, value in settings.items():
        getattr(builder, name)(*([] if value is None else [value]))
    assert builder.build().serialize(Row(text)) == (line + ("" if "set_line_delimiter" in settings else "\n")).encode()


@pytest.mark.parametrize(
    ("without_quotes", "value"), [(True, "a,b"), (True, "a\nb"), (False, ["a;b"]), (True, ["a;b"])]
)
def test_strict_csv_refuses_to_write_what_a_reader_would_take_apart(without_quotes: bool, value: Any) -> None:
    kind = Types.LIST(Types.STRING()) if isinstance(value, list) else Types.STRING()
    builder = CsvRowSerializationSchema.Builder(Types.ROW([kind])).set_strict(True)
    schema = (builder.disable_quote_character() if without_quotes else builder).build()
    with pytest.raises(TypeMismatchError, match="cannot be written so that it can be read again"):
        schema.serialize(Row(value))


@pytest.mark.parametrize(
    "kind",
    [
        Types.ROW([Types.ROW([Types.INT()])]),
        Types.ROW([Types.OBJECT_ARRAY(Types.INT())]),
        Types.OBJECT_ARRAY(Types.OBJECT_ARRAY(Types.INT())),
        Types.OBJECT_ARRAY(Types.ROW([Types.INT()])),
        Types.MAP(Types.STRING(), Types.INT()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("builder", [CsvRowDeserializationSchema.Builder, CsvRowSerializationSchema.Builder])
def test_a_csv_field_whose_parts_have_parts_is_refused_when_the_schema_is_built(
    builder: type[CsvRowDeserializationSchema.Builder], kind: TypeInformation
) -> None:
    with pytest.raises(ArgumentTypeError, match="no form in CSV"):
        builder(Types.ROW([kind])).build()


@pytest.mark.parametrize("nanos", [0, 1, 600_000_000, 999_999_999])
def test_the_nanoseconds_of_an_instant_survive(nanos: int) -> None:
    kind, row = Types.ROW_NAMED(["at"], [Types.INSTANT()]), Row(at=Instant(1_500_000_000, nanos))
    message = JsonRowSerializationSchema.builder().with_type_info(kind).build().serialize(row)
    assert JsonRowDeserializationSchema.builder().type_info(kind).build().deserialize(message) == row
    line = CsvRowSerializationSchema.Builder(kind).build().serialize(row)
    assert CsvRowDeserializationSchema.Builder(kind).build().deserialize(line) == row
