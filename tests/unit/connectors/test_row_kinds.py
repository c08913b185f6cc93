"""What each sink makes of the kind of a Row (+I, -U, +U, -D): it respects the kind, shows it, or refuses the Row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Encoder, Row, RowKind, SerializationSchema, Types
from flinkish.common.serialization import RowFieldExtractorSchema
from flinkish.connectors.frame_sinks import DeltaSink, FunctionSink
from flinkish.core.sink import CommitContext, Sink, WriterSink
from flinkish.datastream.connectors.file_system import FileSink
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from flinkish.datastream.formats.avro import AvroRowSerializationSchema
from flinkish.datastream.formats.csv import CsvBulkWriters, CsvRowSerializationSchema, CsvSchema
from flinkish.datastream.formats.json import JsonRowSerializationSchema
from flinkish.datastream.formats.orc import OrcBulkWriters
from flinkish.datastream.formats.parquet import ParquetBulkWriters
from flinkish.errors import TypeMismatchError
from flinkish.runtime.operators.columns import batches_of
from flinkish.runtime.operators.source_and_sink import SinkWriterFactory
from flinkish.table import DataTypes

ROW = Types.ROW_NAMED(["page", "n"], [Types.STRING(), Types.LONG()])
TABLE_ROW = DataTypes.ROW([DataTypes.FIELD("page", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.BIGINT())])
AVRO = json.dumps(
    {"type": "record", "name": "r", "fields": [{"name": "page", "type": "string"}, {"name": "n", "type": "long"}]}
)
CSV = CsvSchema.builder().add_string_column("page").add_number_column("n").build()
CHANGES = [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE]


def database(folder: Path) -> JdbcConnectionOptions:
    table = "CREATE TABLE IF NOT EXISTS counts (page TEXT PRIMARY KEY, n INTEGER UNIQUE NOT NULL)"
    sqlite3.connect(folder / "shop.db").execute(table)
    return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder}/shop.db").build()


def kafka(value: SerializationSchema) -> KafkaSink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(value).build()
    return KafkaSink.builder().set_bootstrap_servers("host:1").set_record_serializer(serializer).build()


#: the sinks that only append, by what users call them
APPENDING: dict[str, Callable[[Path], Sink]] = {
    "JdbcSink.sink": lambda folder: JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", ROW, database(folder)),
    "DeltaSink": lambda folder: DeltaSink(str(folder)),
    "FunctionSink": lambda folder: FunctionSink(print),
    "Parquet files": lambda f: FileSink.for_bulk_format(str(f), ParquetBulkWriters.for_row_type(TABLE_ROW)).build(),
    "ORC files": lambda f: FileSink.for_bulk_format(str(f), OrcBulkWriters.for_row_type(TABLE_ROW)).build(),
    "CSV files": lambda f: FileSink.for_bulk_format(str(f), CsvBulkWriters.for_schema(CSV)).build(),
    "JSON messages": lambda f: kafka(JsonRowSerializationSchema.builder().with_type_info(ROW).build()),
    "CSV messages": lambda f: kafka(CsvRowSerializationSchema.Builder(ROW).build()),
    "Avro messages": lambda f: kafka(AvroRowSerializationSchema(avro_schema_string=AVRO)),
    "a field as message": lambda f: kafka(RowFieldExtractorSchema(0)),
}


def written(sink: Sink, values: list[Any]) -> list[Any]:
    """The committables of an epoch with these records."""
    factory = SinkWriterFactory(sink, ROW, "sink 'Sink: s'")
    operator, emitted = factory.create(), list[Any]()
    operator.emit = lambda committables, records: emitted.extend(committables)
    operator.process_batch(values[:1], None)
    operator.process_batch(values[1:], None)
    operator.snapshot_state()
    return emitted


@pytest.mark.parametrize("kind", CHANGES, ids=str)
@pytest.mark.parametrize("name", APPENDING)
def test_a_sink_that_appends_refuses_a_row_that_is_no_insert(tmp_path: Path, name: str, kind: RowKind) -> None:
    sink, page = APPENDING[name](tmp_path), b"a" if name == "a field as message" else "a"
    assert written(sink, [Row(page, 1), Row(page, 2)])
    with pytest.raises(TypeMismatchError, match=f"Row.*a.*3.*is of kind {kind.name}.*expected Rows of kind INSERT"):
        written(sink, [Row(page, 1), Row.of_kind(kind, page, 3)])


def test_text_encoders_write_the_kind(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build().with_input_type(ROW)
    rows = [Row.of_kind(kind, "a", 1) for kind in RowKind]
    assert b"".join(part for part, _ in written(sink, rows)) == b"+I[a, 1]\n-U[a, 1]\n+U[a, 1]\n-D[a, 1]\n"


def test_a_schema_of_the_users_own_sees_the_kind() -> None:
    class Tombstones(SerializationSchema):
        def serialize(self, value: Any) -> bytes | None:
            return None if value.get_row_kind() is RowKind.DELETE else str(value.n).encode()

    records = written(kafka(Tombstones()), [Row(page="a", n=1), Row.of_kind(RowKind.DELETE, page="a", n=1)])
    assert [record[2] for record in records] == [b"1", None]


class Upserts:
    """The table of an upsert sink, over several epochs."""

    def __init__(self, folder: Path) -> None:
        self.table = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self.sink: WriterSink = JdbcSink.upsert("counts", ["page"], ROW, database(folder))
        self.epoch = 0

    def deliver(self, *values: Any) -> list[Any]:
        """The rows of the table after an epoch with these records, which is committed twice."""
        committables = written(self.sink, list(values))
        context = CommitContext("job", "shop", "sink", "sink", self.epoch, 1_000, 0, 1)
        self.epoch += 1
        for _ in range(2):
            self.sink.create_committer().commit(iter([committables]), context)
        return self.table.execute("SELECT page, n FROM counts ORDER BY page").fetchall()


def changed(kind: RowKind, page: Any, n: Any) -> Row:
    return Row.of_kind(kind, page, n)


def test_an_upsert_deletes_the_row_of_a_delete_and_ignores_the_row_before_an_update(tmp_path: Path) -> None:
    upserts = Upserts(tmp_path)
    assert upserts.deliver(Row("a", 1), ("b", 2), changed(RowKind.UPDATE_AFTER, "c", 3)) == [
        ("a", 1), ("b", 2), ("c", 3),
    ]  # fmt: skip
    # only the key of a deletion counts, and nothing is there to be deleted for the key d
    assert upserts.deliver(
        changed(RowKind.DELETE, "a", None), changed(RowKind.UPDATE_BEFORE, "b", 2), changed(RowKind.DELETE, "d", 4)
    ) == [("b", 2), ("c", 3)]  # fmt: skip
    before, after = changed(RowKind.UPDATE_BEFORE, None, 2), changed(RowKind.UPDATE_AFTER, "b", 7)
    assert upserts.deliver(before, after) == [("b", 7), ("c", 3)]


def test_the_last_record_of_a_key_decides_whether_an_upsert_deletes_it(tmp_path: Path) -> None:
    upserts = Upserts(tmp_path)
    assert upserts.deliver(Row("a", 1), changed(RowKind.DELETE, "a", 1), Row("b", 2)) == [("b", 2)]
    assert upserts.deliver(changed(RowKind.DELETE, "b", 2), Row("b", 3)) == [("b", 3)]
    assert upserts.deliver(changed(RowKind.DELETE, "b", 3), changed(RowKind.UPDATE_BEFORE, "b", 3)) == []


def test_what_an_upsert_deletes_makes_room_for_what_it_inserts(tmp_path: Path) -> None:
    upserts = Upserts(tmp_path)
    assert upserts.deliver(Row("z", 1)) == [("z", 1)]
    assert upserts.deliver(Row("a", 1), changed(RowKind.DELETE, "z", 1)) == [("a", 1)]


def test_a_deletion_with_named_fields_finds_its_key_by_name(tmp_path: Path) -> None:
    upserts = Upserts(tmp_path)
    upserts.deliver(Row("a", 1), Row("b", 2))
    assert upserts.deliver(Row.of_kind(RowKind.DELETE, n=2, page="b")) == [("a", 1)]


def test_a_deletion_without_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match="has a null in its primary key"):
        Upserts(tmp_path).deliver(changed(RowKind.DELETE, None, 1))


def test_a_delta_merge_marks_deletions_and_ignores_the_row_before_an_update(tmp_path: Path) -> None:
    sink = DeltaSink.merge(str(tmp_path), ["page"])
    rows = [Row("a", 1), changed(RowKind.UPDATE_BEFORE, "a", 1), changed(RowKind.UPDATE_AFTER, "a", 2)]
    (batch,) = batches_of(written(sink, [*rows, changed(RowKind.DELETE, "b", 5), ("c", 6)]))
    deleted = batch.column("__flinkish_deleted").to_pylist()
    assert list(zip(batch.column("page").to_pylist(), batch.column("n").to_pylist(), deleted, strict=True)) == [
        ("a", 1, False), ("a", 2, False), ("b", 5, True), ("c", 6, False),
    ]  # fmt: skip
