"""Lines of CSV to typed Rows and back."""

from __future__ import annotations

import csv
import datetime
import pickle
from decimal import Decimal
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Row, Types
from flinkish.errors import MalformedRecordError, TypeMismatchError
from flinkish.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from tests.support.profiles import examples

CLICK = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.INT()])
WIDE = Types.ROW_NAMED(
    ["s", "b", "i", "d", "x", "day", "ts", "bytes", "list", "row"],
    [
        Types.STRING(),
        Types.BOOLEAN(),
        Types.LONG(),
        Types.DOUBLE(),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
        Types.SQL_TIMESTAMP(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.LIST(Types.INT()),
        Types.ROW([Types.INT(), Types.BOOLEAN()]),
    ],
)


def reader(type_info=CLICK):
    return CsvRowDeserializationSchema.Builder(type_info)


def writer(type_info=CLICK):
    return CsvRowSerializationSchema.Builder(type_info)


@given(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.decimals(allow_nan=False, allow_infinity=False, places=3),
        st.dates(),
        st.datetimes(),
        st.binary(max_size=5),
        st.lists(st.integers(-5, 5), min_size=1, max_size=3),
        st.tuples(st.integers(-5, 5), st.booleans()),
    )
)
def test_what_is_written_reads_back(values):
    line = writer(WIDE).build().serialize(values)
    assert reader(WIDE).build().deserialize(line) == WIDE.convert(values)


def test_null_has_a_literal():
    assert writer().build().serialize((None, None)) == b",\n"
    assert writer().set_null_literal("\\N").build().serialize(("a", None)) == b"a,\\N\n"
    assert reader().set_null_literal("\\N").build().deserialize(b"\\N,\\N") == Row(user=None, n=None)
    assert reader().build().deserialize(b",1") == Row(user="", n=1)


def test_delimiters_quotes_and_escapes_are_configurable():
    schema = reader().set_field_delimiter("|").set_quote_character("'").set_escape_character("^").build()
    assert schema.deserialize(b"'a|b^'c'|1") == Row(user="a|b'c", n=1)
    built = writer().set_field_delimiter("|").set_quote_character("'").set_line_delimiter("\r\n").build()
    assert built.serialize(("a|b", 1)) == b"'a|b'|1\r\n"


def test_arrays_stand_between_their_own_delimiters():
    type_info = Types.ROW_NAMED(["l"], [Types.LIST(Types.STRING())])
    assert reader(type_info).build().deserialize(b"a;b") == Row(l=["a", "b"])
    built = writer(type_info).set_array_element_delimiter("/").build()
    assert built.serialize((["a", "b;c"],)) == b"a/b;c\n"
    with pytest.raises(ValueError, match="array element delimiter is empty"):
        writer(type_info).set_array_element_delimiter("")


def test_comments_are_no_records_if_allowed():
    messages = [b"# x", b" #\n", b"# x\na,1", b"a,1"]
    row = Row(user="a", n=1)
    assert reader().set_allow_comments(True).build().deserialize_batch(messages) == [None, None, row, row]
    with pytest.raises(MalformedRecordError):
        reader().build().deserialize(b"# x")


@pytest.mark.parametrize("message", [b"", b"a,1,2", b'"a,1', b'"a"b,1', b"\xff,1"])
def test_malformed_lines_are_refused_or_passed_over(message):
    with pytest.raises(MalformedRecordError, match="CSV line"):
        reader().build().deserialize(message)
    schema = reader().set_ignore_parse_errors(True).build()
    assert schema.deserialize_batch([message, b"a,1", None]) == [None, Row(user="a", n=1), None]


def test_the_error_names_the_field_and_quotes_the_line():
    with pytest.raises(MalformedRecordError) as caught:
        reader().build().deserialize(b"ann,one")
    assert "'ann,one'" in str(caught.value) and "field 'n'" in str(caught.value)
    assert "expected a whole number" in str(caught.value)


@settings(max_examples=examples(250))
@given(
    st.sampled_from([{}, {"escape": "\\"}, {"delimiter": "§", "quote": "ü"}, {"delimiter": "]", "escape": "^"}]),
    st.text(st.sampled_from(',"§ü]\\^\n\ra'), max_size=12),
)
def test_a_file_is_cut_into_records_where_the_csv_module_ends_them(dialect, content):
    built = reader().set_field_delimiter(dialect.get("delimiter", ",")).set_quote_character(dialect.get("quote", '"'))
    if "escape" in dialect:
        built.set_escape_character(dialect["escape"])
    options = {"delimiter": dialect.get("delimiter", ","), "quotechar": dialect.get("quote", '"')}
    options |= {"escapechar": dialect.get("escape"), "strict": True}
    try:
        expected = list(csv.reader(StringIO(content + "\na", newline=""), **options))
    except csv.Error:
        return
    cut = built.build().records.whole_in((content + "\na").encode())
    if cut is None:
        return
    found = [list(csv.reader(StringIO(record.decode(), newline=""), **options)) for record in cut]
    assert [rows[0] for rows in found] == expected[:-1] and all(len(rows) == 1 for rows in found)


def test_half_of_a_surrogate_pair_has_no_utf_8():
    with pytest.raises(TypeMismatchError, match="cannot be written"):
        writer().build().serialize(("\ud83d", 1))


def test_a_row_of_one_empty_field_is_an_empty_line():
    type_info = Types.ROW_NAMED(["s"], [Types.STRING()])
    assert writer(type_info).build().serialize(("",)) == b"\n"
    assert reader(type_info).build().deserialize(b"\n") == Row(s="")


def test_schemas_are_picklable_and_values_typed():
    line = pickle.loads(pickle.dumps(writer().build())).serialize(("a", 1))
    assert pickle.loads(pickle.dumps(reader().build())).deserialize(line) == Row(user="a", n=1)
    type_info = Types.ROW([Types.BIG_DEC(), Types.SQL_DATE()])
    assert list(reader(type_info).build().deserialize(b"0.10,2026-01-31")) == [
        Decimal("0.10"),
        datetime.date(2026, 1, 31),
    ]


def test_builders_refuse_what_cannot_work():
    with pytest.raises(TypeError, match="RowTypeInfo"):
        reader(Types.INT())
    with pytest.raises(ValueError, match="expected one character"):
        reader().set_field_delimiter("||")
    with pytest.raises(ValueError, match="line delimiter"):
        writer().set_line_delimiter(";")
    with pytest.raises(TypeError, match="no form in CSV"):
        reader(Types.ROW([Types.MAP(Types.STRING(), Types.INT())])).build()


def test_a_field_may_be_longer_than_the_csv_modules_default_limit() -> None:
    kind = Types.ROW_NAMED(["n", "text"], [Types.INT(), Types.STRING()])
    row = Row(n=1, text="x, " * 100_000)
    line = CsvRowSerializationSchema.Builder(kind).build().serialize(row)
    assert CsvRowDeserializationSchema.Builder(kind).build().deserialize(line) == row


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    kind = Types.ROW_NAMED(["text", "n"], [Types.STRING(), Types.INT()])
    assert CsvRowDeserializationSchema.Builder(kind).build().deserialize(b'\xef\xbb\xbf"a,b",1') == Row(text="a,b", n=1)


@pytest.mark.parametrize("in_list", [False, True])
def test_half_of_a_surrogate_pair_is_an_error_with_the_field(in_list: bool) -> None:
    kind = Types.LIST(Types.STRING()) if in_list else Types.STRING()
    schema = CsvRowSerializationSchema.Builder(Types.ROW_NAMED(["n", "text"], [Types.INT(), kind])).build()
    with pytest.raises(TypeMismatchError, match=r"\[CsvRowSerializationSchema, field 'text'\]") as failure:
        schema.serialize(Row(1, ["\ud83d"] if in_list else "\ud83d"))
    assert "surrogates not allowed" in str(failure.value)
    str(failure.value).encode()
