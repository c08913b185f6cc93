"""Schemas and encoders."""

from __future__ import annotations

import pickle

import pytest

from flinkish.common import ByteArraySchema, Encoder, Row, RowKind, SimpleStringSchema, Types
from flinkish.common.serialization import DeserializationSchema, RowFieldExtractorSchema, SerializationSchema
from flinkish.common.text import PRINT_ROW_SEPARATOR, text_writer
from flinkish.common.typeinfo import ExternalTypeInfo
from flinkish.errors import MalformedRecordError, TypeMismatchError
from tests.support.rows import hold, refuses


def test_strings_go_there_and_back_in_their_charset():
    schema = pickle.loads(pickle.dumps(SimpleStringSchema("ISO-8859-1")))
    assert schema.serialize_batch(["ä", None]) == [b"\xe4", None]
    assert schema.deserialize_batch([b"\xe4", None]) == ["ä", None]
    assert schema.get_produced_type() == Types.STRING()


@pytest.mark.parametrize(("charset", "text"), [("UTF-8", "half \ud83d"), ("ISO-8859-1", "5 €")])
def test_a_character_that_the_charset_does_not_have_is_refused_by_name(charset, text):
    for write in (SimpleStringSchema(charset).serialize, Encoder.simple_string_encoder(charset).encode):
        with pytest.raises(TypeMismatchError, match=f"has no form in {charset}.*'replace'"):
            write(text)


def test_what_has_another_type_or_no_form_is_refused():
    rows = [
        (lambda: SimpleStringSchema().deserialize(b"ab\xff"), MalformedRecordError, r"xff.*not UTF-8 text"),
        (lambda: SimpleStringSchema().serialize(5), TypeMismatchError, "the record 5 is of type int"),
        (lambda: ByteArraySchema().serialize("a"), TypeMismatchError, "expected bytes"),
        (lambda: SimpleStringSchema("klingon"), ValueError, "unknown charset"),
        (lambda: RowFieldExtractorSchema(1).serialize(Row(1, "v")), TypeMismatchError, "field 1 .* is of type str"),
        (lambda: RowFieldExtractorSchema(1).serialize(Row(1)), TypeMismatchError, "no field 1"),
        (lambda: RowFieldExtractorSchema(-1), ValueError, "non-negative"),
    ]
    hold(refuses, rows)


def test_bytes_stay_and_one_field_of_a_row_is_extracted():
    assert ByteArraySchema().serialize_batch([b"a", bytearray(b"b"), None]) == [b"a", b"b", None]
    assert ByteArraySchema().deserialize(b"a") == b"a"
    # as in Flink, since None would be a tombstone in Kafka
    assert RowFieldExtractorSchema(1).serialize_batch([Row(1, b"v"), Row(1, None), None]) == [b"v", b"", b""]


class Reversed(SerializationSchema, DeserializationSchema):
    def serialize(self, value):
        return value[::-1].encode()

    def deserialize(self, message):
        return message.decode()[::-1]


def test_schemas_of_ones_own_work_on_lists():
    assert Reversed().deserialize_batch(Reversed().serialize_batch(["ab", "cd"])) == ["ab", "cd"]
    assert Reversed().get_produced_type() == Types.PICKLED_BYTE_ARRAY()


def test_the_string_encoder_writes_javas_text_for_typed_records_and_pythons_for_others():
    encoder = Encoder.simple_string_encoder()
    assert encoder.encode_batch([("a", 1), None]) == b"('a', 1)\nNone\n"
    typed = encoder.bind(Types.TUPLE([Types.STRING(), Types.INT()]))
    assert typed.encode(("a", 1)) == b"(a,1)\n"
    assert pickle.loads(pickle.dumps(typed)).encode(("a", 1)) == b"(a,1)\n"


def test_texts_of_typed_records_are_javas_but_print_writes_the_fields_of_rows_as_python():
    type_info = Types.ROW([Types.STRING(), Types.INT()])
    row = Row.of_kind(RowKind.UPDATE_AFTER, "a", None)
    for typed in (type_info, ExternalTypeInfo(type_info)):
        assert text_writer(typed)(row) == "+U[a, null]"
        # the map that PyFlink's print() puts before the sink joins str() of the fields
        assert text_writer(typed, PRINT_ROW_SEPARATOR)(row) == "+U[a,None]"
    assert text_writer(Types.TUPLE([type_info]), PRINT_ROW_SEPARATOR)((row,)) == "(+U[a, null])"
    assert text_writer(Types.MAP(Types.STRING(), Types.BOOLEAN()))({"k": True}) == "{k=true}"
    assert text_writer(Types.LIST(Types.INT()))([1, None]) == "[1, null]"
    for separator in ([], [PRINT_ROW_SEPARATOR]):
        assert text_writer(Types.PICKLED_BYTE_ARRAY(), *separator)(row) == str(row)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (-2.5e-7, "-2.5E-7"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (123456789.25, "1.2345678925E8"),
        (1e22, "1.0E22"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_does_wherever_they_stand(value: float, text: str) -> None:
    assert text_writer(Types.DOUBLE())(value) == text
    assert text_writer(Types.ROW([Types.DOUBLE()]))(Row(value)) == f"+I[{text}]"
    assert text_writer(Types.TUPLE([Types.DOUBLE()]), PRINT_ROW_SEPARATOR)((value,)) == f"({text})"
    assert Encoder.simple_string_encoder().bind(Types.DOUBLE()).encode(value) == f"{text}\n".encode()
