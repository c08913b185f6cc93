"""The decoders of JSON rows: whatever decodes a message, it gives the same record or the same error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flinkish.common import Types
from flinkish.errors import MalformedRecordError
from flinkish.formats._json_values import JsonReading
from flinkish.formats.json import FastRows, JsonRowDeserializationSchema, PlainRows, by_msgspec, by_scanner

FLAT = Types.ROW_NAMED(
    ["user", "n", "big", "ok", "price", "ä"],
    [Types.STRING(), Types.INT(), Types.LONG(), Types.BOOLEAN(), Types.DOUBLE(), Types.BIG_INT()],
)
SMALL = Types.ROW_NAMED(["n"], [Types.BYTE()])
NESTED = Types.ROW_NAMED(
    ["user", "tags", "numbers", "map", "row", "price", "n"],
    [
        Types.STRING(),
        Types.LIST(Types.STRING()),
        Types.PRIMITIVE_ARRAY(Types.INT()),
        Types.MAP(Types.STRING(), Types.DOUBLE()),
        FLAT,
        Types.FLOAT(),
        Types.SHORT(),
    ],
)
TIMES = Types.ROW_NAMED(
    ["user", "n", "price", "ok", "big"],
    [Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.INSTANT(), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.CHAR()],
)
EXACT = Types.ROW_NAMED(["price", "n", "user"], [Types.BIG_DEC(), Types.DOUBLE(), Types.STRING()])
QUOTED = Types.ROW_NAMED(['a"b', "user"], [Types.INT(), Types.STRING()])
ROW_TYPES = [FLAT, SMALL, NESTED, TIMES, EXACT, QUOTED, Types.ROW([]), Types.ROW([Types.LONG(), Types.STRING()])]
READINGS = [
    JsonReading(),
    JsonReading(strict=True),
    JsonReading(fail_on_missing_field=True),
    JsonReading(ignore_parse_errors=True),
    JsonReading(ignore_parse_errors=True, strict=True),
]

NAMES = ["user", "n", "big", "ok", "price", "ä", "tags", "numbers", "map", "row", "f0", "f1", 'a"b', "unknown"]
NUMBERS = [
    *"0 -0 1 -1 127 128 -129 32767 32768 2147483647 2147483648 -2147483649 9223372036854775807".split(),
    *"9223372036854775808 -9223372036854775809 18446744073709551616 123456789012345678901234567890".split(),
    *"0.0 -0.0 1.0 1.5 1e5 1E+5 1e-7 1e400 -1e400 5e-324 1.7976931348623157e308 9007199254740993 0.1".split(),
    *"123456789012345678.5 01 1. .5 + - 1e NaN Infinity -Infinity".split(),
    "9" * 400, "9" * 4_300, "9" * 4_301, "9" * 9_000,
]  # fmt: skip
TEXTS = [
    *r'"" "a" "ä" "1" "1.5" "true" "NaN" "2026-01-31" "2026-01-31T12:30:00Z" "YWI=" "😀" "\q" "\n" "\u12"'.split(),
    *r'"\u00e9" "\ud83d" "\ud83d\ude00" "\ude00" "\ud83dx" "\u0000" "\u12g4" "a'.split(),
    '"\x7f"', '"\x01"', '"\t"', "null", "true", "false", "tru", "nul",
    "{}", "[]", "[1, null]", '["a", null]', '{"a": 1.5}', '{"a": null}',
]  # fmt: skip

BLANKS = st.sampled_from(["", "", " ", "\n", "\t\r", "\x0b", "\u00a0"])
VALUES = st.recursive(
    st.sampled_from(NUMBERS + TEXTS)
    | st.integers().map(str)
    | st.floats(allow_nan=False).map(json.dumps)
    | st.text(max_size=4).map(json.dumps)
    | st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False)),
    lambda values: (
        st.lists(values, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4).map(lambda fields: object_of(fields))
    ),
    max_leaves=6,
)
#: values that fit the fields of most types, so that whole messages are read
FITTING = {
    "user": st.text(max_size=5).map(json.dumps),
    "n": st.integers(-128, 127).map(str),
    "big": st.integers(-(2**63), 2**63 - 1).map(str),
    "ok": st.sampled_from(["true", "false", "null"]),
    "price": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    "ä": st.integers(-(2**70), 2**70).map(str),
}


def object_of(fields):
    return (
        "{" + ",".join(f"{json.dumps(name, ensure_ascii=len(value) % 2 == 0)}: {value}" for name, value in fields) + "}"
    )


FITTING_OBJECTS = st.fixed_dictionaries(FITTING).map(lambda fields: object_of(fields.items()))
OBJECTS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=8).map(object_of)
MIXED = st.builds(lambda whole, more: whole[:-1] + "," + more[1:], FITTING_OBJECTS, OBJECTS)
DOCUMENTS = st.builds(lambda *parts: "".join(parts), BLANKS, FITTING_OBJECTS | OBJECTS | MIXED | VALUES, BLANKS)


@st.composite
def messages(draw):
    """Messages that are JSON, nearly JSON, or JSON of which some bytes were changed."""
    text = draw(DOCUMENTS).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        place = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 2))
        inserted = draw(
            st.sampled_from([b"", b",", b'"', b"{", b"}", b"[", b"0", b"\\", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0"])
        )
        text = text[:place] + inserted + text[place + cut :]
    around = draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b" ", b"\n"]))
    return around + text + draw(st.sampled_from([b"", b"", b"", b" x", b"{}", b"\n"]))


def outcome(read, batch):
    try:
        return [repr(record) for record in read(batch)]
    except MalformedRecordError as error:
        return str(error)


def fast_readers(type_info, how):
    yield FastRows(type_info, how, by_scanner)
    try:
        yield FastRows(type_info, how, by_msgspec)
    except ValueError:
        assert type_info in (EXACT, QUOTED), "a type that msgspec has no struct for"


@given(st.sampled_from(ROW_TYPES), st.sampled_from(READINGS), st.lists(messages() | st.none(), max_size=4))
@example(FLAT, JsonReading(), [b'{"unknown": "\xff"}'])
@example(FLAT, JsonReading(), [b'{"unknown": ' + b"9" * 4_301 + b"}"])
@example(FLAT, JsonReading(), [b'{"\xff": 1}', b"{}"])
@example(FLAT, JsonReading(ignore_parse_errors=True), [b'{"n": 1}', b"?", None, b'{"n": "x", "big": 2}', b'{"n": 3}'])
@example(FLAT, JsonReading(), [b'{"n": 1, "n": "x"}', b'{"n": "x", "n": 1}'])
@example(Types.ROW([]), JsonReading(), [b"[]", b"{}"])
def test_each_decoder_gives_the_record_or_the_error_of_the_plain_reader(type_info, how, batch):
    expected = outcome(PlainRows(type_info, how).read, batch)
    for rows in fast_readers(type_info, how):
        assert outcome(rows.read, batch) == expected


@given(st.lists(FITTING_OBJECTS, min_size=1, max_size=3))
def test_fitting_messages_are_read_by_each_decoder(texts):
    batch = [text.encode() for text in texts]
    expected = PlainRows(FLAT, JsonReading()).read(batch)
    for rows in fast_readers(FLAT, JsonReading()):
        assert rows.read(batch) == expected


@pytest.mark.parametrize("message", ["{}", bytearray(b"{}"), 5])
def test_what_is_not_bytes_is_treated_alike_by_each_decoder(message):
    def kind(read):
        try:
            return repr(read([message]))
        except TypeError as error:
            return str(error)

    expected = kind(PlainRows(SMALL, JsonReading()).read)
    assert [kind(rows.read) for rows in fast_readers(SMALL, JsonReading())] == [expected] * 2


PROGRAM = """
import sys
if sys.argv[1] == "without":
    sys.modules["msgspec"] = None
import ast
from flinkish.common import Types
from flinkish.formats.json import JsonRowDeserializationSchema
kind = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.INT()])
schema = JsonRowDeserializationSchema.builder().type_info(kind).ignore_parse_errors().build()
print(schema.deserialize_batch(ast.literal_eval(sys.argv[2])))
print(sys.modules.get("msgspec") is not None)
"""


@pytest.mark.parametrize("msgspec", ["with", "without"])
def test_a_schema_reads_the_same_with_and_without_msgspec(msgspec):
    batch = [b'{"user": "a", "n": 1}', b'{"n": 2}', b'{"n": 3.9, "user": 5}', b"?", None, b'{"n": 2147483648}']
    command = [sys.executable, "-c", PROGRAM, msgspec, repr(batch)]
    records, uses_msgspec = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert records == (
        "[Row(user='a', n=1), Row(user=None, n=2), Row(user='5', n=3), None, None, Row(user=None, n=None)]"
    )
    assert uses_msgspec == str(msgspec == "with")


def test_a_schema_takes_large_batches_in_which_few_messages_are_unusual():
    batch = [b'{"n": %d}' % number for number in range(1_000)]
    batch[7], batch[500] = b'{"n": "7"}', b"\xef\xbb\xbf" + batch[500]
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.INT()])).build()
    assert [row.n for row in schema.deserialize_batch(batch)] == list(range(1_000))
