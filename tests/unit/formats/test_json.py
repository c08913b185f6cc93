"""JSON objects to typed Rows and back."""

from __future__ import annotations

import datetime
import json
import math
import pickle
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common import Instant, Row, Types
from flinkish.errors import MalformedRecordError, TypeMismatchError
from flinkish.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from flinkish.table import DataTypes

CLICK = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.INT()])
EVERYTHING = {
    "s": (Types.STRING(), st.text(max_size=5)),
    "b": (Types.BOOLEAN(), st.booleans()),
    "i": (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    "l": (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    "d": (Types.DOUBLE(), st.floats(allow_nan=False)),
    "f": (Types.FLOAT(), st.floats(allow_nan=False, width=32)),
    "bi": (Types.BIG_INT(), st.integers(-(10**30), 10**30)),
    "bd": (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False, places=6)),
    "day": (Types.SQL_DATE(), st.dates()),
    "clock": (Types.SQL_TIME(), st.times().map(lambda value: value.replace(microsecond=0))),
    "ts": (Types.SQL_TIMESTAMP(), st.datetimes()),
    "at": (Types.INSTANT(), st.builds(Instant, st.integers(0, 2**32), st.integers(0, 999_999_999))),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
    "list": (Types.LIST(Types.INT()), st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3)),
    "map": (Types.MAP(Types.STRING(), Types.LONG()), st.dictionaries(st.text(max_size=2), st.integers(-5, 5))),
    "row": (CLICK, st.builds(lambda user, n: Row(user=user, n=n), st.text(max_size=3), st.integers(-5, 5))),
}  # fmt: skip
WIDE = Types.ROW_NAMED(list(EVERYTHING), [type_info for type_info, _ in EVERYTHING.values()])
ROWS = st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, (_, values) in EVERYTHING.items()})


def reader(type_info=CLICK):
    return JsonRowDeserializationSchema.builder().type_info(type_info)


def writer(type_info=CLICK):
    return JsonRowSerializationSchema.builder().with_type_info(type_info).build()


@given(ROWS)
def test_what_is_written_is_json_and_reads_back(values):
    row = Row(**values)
    message = writer(WIDE).serialize(row)
    json.loads(message)
    assert reader(WIDE).build().deserialize(message) == row


def test_fields_are_found_by_name_and_absent_ones_are_none():
    schema = reader().build()
    assert schema.deserialize_batch([b'{"n": 1, "user": "ann", "more": []}', b"{}", None]) == [
        Row(user="ann", n=1),
        Row(user=None, n=None),
        None,
    ]
    assert schema.get_produced_type() == CLICK


def test_a_missing_field_is_an_error_if_asked_for_but_null_is_not():
    schema = reader().fail_on_missing_field().build()
    assert schema.deserialize(b'{"user": null, "n": null}') == Row(user=None, n=None)
    with pytest.raises(MalformedRecordError, match="field 'n', which is missing"):
        schema.deserialize(b'{"user": "ann"}')


@pytest.mark.parametrize(
    "message",
    [b'{"user": "ann", "n":', b"not json", b"[1]", b"3", b"", b"\xff", b'{"n": NaN}', b'{"a": ' * 100_000]
    + [b'{"n": ' + b"9" * 5_000 + b"}"],
    ids=lambda message: repr(message[:20]),
)
def test_malformed_messages_are_refused_or_passed_over(message):
    with pytest.raises(MalformedRecordError) as caught:
        reader().build().deserialize_batch([b'{"n": 1}', message])
    assert len(str(caught.value)) < 700
    assert reader().ignore_parse_errors().build().deserialize_batch([message, b'{"n": 1}']) == [
        None,
        Row(user=None, n=1),
    ]


def test_the_error_quotes_the_text_and_names_the_field():
    with pytest.raises(MalformedRecordError) as caught:
        reader().build().deserialize(b'{"user": "ann", "n": "one"}')
    text = str(caught.value)
    assert """'{"user": "ann", "n": "one"}'""" in text
    assert "field 'n'" in text and "expected a whole number" in text and "ignore_parse_errors" in text


def test_the_text_is_compact_utf_8_in_the_order_of_the_fields():
    assert writer().serialize(("änn", 2)) == '{"user":"änn","n":2}'.encode()
    assert writer().serialize_batch([Row(n=1, user='"'), ("b", None)]) == [
        b'{"user":"\\"","n":1}',
        b'{"user":"b","n":null}',
    ]


def test_numbers_that_json_lacks_are_texts_and_read_back():
    type_info = Types.ROW_NAMED(["d"], [Types.DOUBLE()])
    for value, text in ((math.inf, b'{"d":"Infinity"}'), (-math.inf, b'{"d":"-Infinity"}')):
        assert writer(type_info).serialize((value,)) == text
        assert reader(type_info).build().deserialize(text) == Row(d=value)
    assert writer(type_info).serialize((math.nan,)) == b'{"d":"NaN"}'


def test_half_of_a_surrogate_pair_is_written_as_it_was_read():
    kind = Types.ROW_NAMED(["user"], [Types.STRING()])
    row = JsonRowDeserializationSchema.builder().type_info(kind).build().deserialize(b'{"user": "a\\ud83d"}')
    assert row == Row(user="a\ud83d")
    assert JsonRowSerializationSchema.builder().with_type_info(kind).build().serialize(row) == b'{"user":"a\\ud83d"}'


def test_a_record_that_does_not_fit_the_type_is_refused():
    with pytest.raises(TypeMismatchError, match="JsonRowSerializationSchema.*field 'n'"):
        writer().serialize(("a", "b"))


def test_schemas_are_picklable():
    message = pickle.loads(pickle.dumps(writer())).serialize(("a", 1))
    assert pickle.loads(pickle.dumps(reader().ignore_parse_errors().build())).deserialize_batch([message, b"?"]) == [
        Row(user="a", n=1),
        None,
    ]


def test_a_json_schema_gives_the_type():
    schema = {
        "type": "object",
        "definitions": {"day": {"type": "string", "format": "date"}},
        "properties": {
            "user": {"type": "string"},
            "n": {"type": ["integer", "null"]},
            "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "day": {"$ref": "#/definitions/day"},
            "tags": {"type": "array", "items": {"type": "boolean"}},
            "blob": {"type": "string", "contentEncoding": "base64"},
        },
    }
    built = JsonRowDeserializationSchema.builder().json_schema(json.dumps(schema)).build()
    assert repr(built.get_produced_type()) == (
        "RowTypeInfo(user: String, n: BigDecimal, price: BigDecimal, day: DateTypeInfo,"
        " tags: ObjectArrayTypeInfo<Boolean>, blob: PrimitiveArrayTypeInfo<Byte>)"
    )
    assert built.deserialize(b'{"n": 5, "price": 0.10, "day": "2026-01-31"}')[1:4] == [
        Decimal(5),
        Decimal("0.1"),
        datetime.date(2026, 1, 31),
    ]


def test_a_json_schema_may_have_comments_and_other_quotes_as_in_flink():
    schema = """{ type: 'object', /* a comment */ $id: "http://example.org//x", properties: {
        name: { type: "string" }, // another
        at: { type: 'string', format: 'date-time', contentEncoding: 'base64' },
        both: { oneOf: [{ type: 'integer' }, { type: 'number' }, { type: 'null' }], if: {} }
    } }"""
    built = JsonRowDeserializationSchema.builder().json_schema(schema).build()
    assert repr(built.get_produced_type()) == "RowTypeInfo(name: String, at: TimestampTypeInfo, both: BigDecimal)"


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '{"type": "object", "properties": {"a": {"anyOf": []}}}',
        '{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}',
        '{"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}',
        '{"type": "object", "properties": {"a": {"type": "array"}}}',
        '{"type": "object", "properties": {"a": {}}}',
        '{"type": "object", "properties": {"a": {"type": "string", "not": {}}}}',
        '{"type": "object", "properties": {"a": {"type": "string", "contentEncoding": "hex"}}}',
    ],
)
def test_a_json_schema_without_a_type_is_refused(schema):
    with pytest.raises(ValueError, match="JSON schema"):
        JsonRowDeserializationSchema.builder().json_schema(schema)


def test_builders_refuse_what_cannot_work():
    with pytest.raises(ValueError, match="has no type"):
        JsonRowDeserializationSchema.builder().build()
    with pytest.raises(TypeError, match="Typeinfo should be set"):
        JsonRowSerializationSchema.builder().build()
    with pytest.raises(ValueError, match="both enabled"):
        reader().ignore_parse_errors().fail_on_missing_field().build()
    with pytest.raises(TypeError, match="expected a ROW"):
        reader(Types.INT())
    for unfit in (Types.PICKLED_BYTE_ARRAY(), Types.TUPLE([Types.INT()]), Types.MAP(CLICK, Types.INT())):
        with pytest.raises(TypeError, match="no form in JSON"):
            reader(Types.ROW([unfit])).build()
        with pytest.raises(TypeError, match="no form in JSON"):
            writer(Types.ROW([unfit]))


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+02:00", "9999-12-31T23:00:00-02:00", "0000-01-01T00:00:00Z"])
def test_a_time_whose_year_in_utc_does_not_exist_is_malformed(text: str) -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["at"], [Types.INSTANT()]))
    message = json.dumps({"at": text}).encode()
    with pytest.raises(MalformedRecordError, match="expected a point in time"):
        builder.build().deserialize(message)
    assert builder.ignore_parse_errors().build().deserialize(message) == Row(at=None)


def test_a_byte_order_mark_before_the_object_is_no_part_of_it() -> None:
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.INT()])).build()
    assert schema.deserialize(b'\xef\xbb\xbf{"n": 1}') == Row(n=1)


def test_a_json_schema_that_refers_to_itself_has_no_type() -> None:
    schema = '{"type": "object", "properties": {"child": {"$ref": "#"}}}'
    with pytest.raises(ValueError, match="refers to itself"):
        JsonRowDeserializationSchema.builder().json_schema(schema)


def test_half_of_a_surrogate_pair_is_written_as_an_escape_sequence() -> None:
    type_info = Types.ROW_NAMED(["text"], [Types.STRING()])
    message = JsonRowSerializationSchema.builder().with_type_info(type_info).build().serialize(Row("a\ud83d"))
    assert message == b'{"text":"a\\ud83d"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.999", "2.00"), ("1e3", "1000.00"), ("7", "7.00"), ('"1.005"', "1.01"), ("123456789", None), ("null", None)],
)
def test_a_decimal_has_the_scale_and_the_precision_of_its_type(text: str, value: str | None) -> None:
    kind = DataTypes.DECIMAL(10, 2)
    rows = reader(Types.ROW_NAMED(["x", "l"], [kind, Types.LIST(kind)])).build()
    found = rows.deserialize(f'{{"x": {text}, "l": [{text}]}}'.encode())
    assert [str(item) for item in (found.x, *found.l)] == [str(value)] * 2


def test_seconds_of_many_digits_are_cut_to_nanoseconds_and_not_rounded() -> None:
    instants = reader(Types.ROW_NAMED(["t", "x"], [Types.INSTANT(), Types.BIG_DEC()])).build()
    for text, wanted in ((f"0.{'9' * 40}", Instant(0, 999_999_999)), (f"-1.{'0' * 30}1", Instant(-2, 999_999_999))):
        assert instants.deserialize(f'{{"t": {text}}}'.encode()).t == wanted
