"""What the connectors of tables read and write as columns: the same as the formats of Rows, whatever stands in the
messages and files.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.types import Row
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.connectors.columns import RecordReader
from flinkish.core.column_batch import ColumnBatch
from flinkish.core.last_changes import last_changes
from flinkish.core.source import SplitRange, SplitSource
from flinkish.errors import ConfigurationError, MalformedRecordError, TypeMismatchError
from flinkish.table import connectors
from flinkish.table.declared import DeclaredTable, TableFormat
from flinkish.table.logical_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT,
    STRING,
    LogicalType,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flinkish.table.schema import TableDescriptor
from flinkish.table.syntax import ColumnDefinition, TableDefinition
from tests.support.programs import new_environment
from tests.support.rows import hold

KINDS: dict[str, LogicalType] = {
    "i": INT,
    "l": BIGINT,
    "d": DOUBLE,
    "s": STRING,
    "b": BOOLEAN,
    "c": decimal(6, 2),
    "x": BYTES,
    "at": timestamp(3),
    "z": timestamp_ltz(3),
    "t": time(0),
    "a": array(INT),
    "m": map_of(STRING, BIGINT),
    "r": row(["u", "v", "w"], [INT, timestamp(3), STRING]),
}


def table(columns: dict[str, LogicalType], **options: str) -> TableDescriptor:
    given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    definitions = tuple(ColumnDefinition(name, kind) for name, kind in columns.items())
    return TableDescriptor(TableDefinition(definitions, options=given))


def read(source: Any) -> list[Any]:
    """The batches of all splits of a source."""
    assert isinstance(source, SplitSource)
    reader, found = source.create_reader(), []
    for split in source.create_enumerator([]).discover(()):
        wanted = SplitRange(split, 0, None, True)
        reader.open([wanted], 1_000)
        found += [records.values for records in reader.read(wanted, 1_000)]
    reader.close()
    return found


# --- messages -------------------------------------------------------------------------------------------------------

MOMENTS = ["2026-01-31 12:00:00", "2026-01-31 12:00:00.5", "2026-02-30 12:00:00", "2026-01-31T12:00:00", "noon", 7]
_VALUES: dict[str, Sequence[Any]] = {
    "i": [1, -7, 2**31, "12", " 12", 1.5, True, None, [], "x"],
    "l": [1, 2**63 - 1, 2**63, 1e3, "9", None, {}],
    "d": [1, 1.5, "1e3", "NaN", 10**400, None, "y"],
    "s": ["", "ann", "ä\u2028", 1, 1.0, True, None, {"k": [1]}, "\ud83d"],
    "b": [True, False, "TRUE", 1, None],
    "c": [1, "1.005", 1.005, 123456.7, None, "z", "1_0", " 2", "NaN", 10**25, True],
    "x": ["YQ==", "?", 1, None],
    "at": [*MOMENTS, None, "2026-01-31 12:00:00.1234567"],
    "z": [f"{text}Z" for text in MOMENTS] + [None, "2026-01-31 12:00:00"],
    "t": ["12:30:00", "12:30", "12:30:00.25", "25:00:00", None, 5],
    "a": [[], [1, None], ["x"], None, {}],
    "m": [{}, {"k": 1}, {"k": None}, {"k": "x"}, None, []],
    "r": [{}, {"u": 1, "v": MOMENTS[0]}, {"u": "x"}, {"v": MOMENTS[3]}, {"w": 1.50}, None, []],
}
_OBJECT = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in _VALUES.items()})
_BROKEN = st.sampled_from(
    [None, b"", b"{", b"null", b"[]", b"7", b'{"i":1} tail', b'\xef\xbb\xbf{"i":1}', b'{"i":\xff}', b'{"s":"\xc3\xa4"}']
)


def _message(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


_TEXTS = [
    "",
    "1",
    " 2",
    "2147483648",
    "1.5",
    "x",
    "true",
    "2026-01-31 12:00:00",
    "2026-01-31 12:00:00.5Z",
    '"a ""b"",c"',
    "1;2",
]
_LINE = st.lists(st.sampled_from(_TEXTS), min_size=len(KINDS) - 3, max_size=len(KINDS) - 1).map(
    lambda texts: ",".join(texts).encode()
)
#: CSV has no maps, and no rows in arrays.
_CSV_KINDS = {name: kind for name, kind in KINDS.items() if name not in ("m", "r")}


def check_columns(messages: list[bytes | None], kinds: dict[str, LogicalType], used: list[str], **options: str) -> None:
    """Messages are read into columns as they are into Rows."""
    declared = DeclaredTable(table(kinds, connector="filesystem", path="/none", **options), "t")
    assert declared.format is not None
    made = TableFormat(declared, declared.format, declared.physical)
    decoder = made.decoder(used)
    names = [name for name in kinds if name in used]
    wanted = declared.physical.only(names)
    try:
        by_rows = made.reading().deserialize_batch(messages)
    except MalformedRecordError as failed:
        with pytest.raises(MalformedRecordError) as raised:
            decoder.decode(messages)
        assert raised.value.what == failed.what
        return
    there = [place for place, one in enumerate(by_rows) if one is not None]
    try:
        records = [[by_rows[place][name] for name in names] for place in there]
        expected = RecordWriter(wanted.row_type).write(records)
    except TypeMismatchError:
        with pytest.raises(TypeMismatchError, match="surrogate"):
            decoder.decode(messages)
        return
    batch, kept = decoder.decode(messages)
    assert (list(range(len(messages))) if kept is None else list(kept)) == there
    assert batch.schema == wanted.schema
    assert repr(RecordReader(wanted.row_type).read(batch)) == repr(RecordReader(wanted.row_type).read(expected))


@given(
    messages=st.lists(st.one_of(_OBJECT.map(_message), _BROKEN), max_size=12),
    used=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=5, unique=True),
    how=st.sampled_from(["", "json__ignore_parse_errors", "json__fail_on_missing_field"]),
)
def test_json_is_read_into_columns_as_it_is_into_rows(messages: list[bytes | None], used: list[str], how: str) -> None:
    # a field that is not used is not looked at, unless it must be there
    kinds = KINDS if how == "json__fail_on_missing_field" else {name: KINDS[name] for name in KINDS if name in used}
    check_columns(messages, kinds, used, format="json", **({how: "true"} if how else {}))


@given(
    messages=st.lists(st.one_of(_LINE, st.sampled_from([None, b"", b'"', b"\xff"])), max_size=8),
    ignore=st.booleans(),
)
def test_csv_is_read_into_columns_as_it_is_into_rows(messages: list[bytes | None], ignore: bool) -> None:
    options = {"csv__ignore_parse_errors": str(ignore).lower(), "csv__null_literal": "x"}
    check_columns(messages, _CSV_KINDS, list(_CSV_KINDS), format="csv", **options)


def test_fields_of_csv_that_are_not_used_are_not_read() -> None:
    declared = DeclaredTable(table({"a": INT, "b": INT}, connector="filesystem", path="/none", format="csv"), "t")
    assert declared.format is not None
    decoder = TableFormat(declared, declared.format, declared.physical).decoder(["b"])
    assert decoder.decode([b"no number,1", None, b",2"])[0].to_pydict() == {"b": [1, 2]}


# --- files ----------------------------------------------------------------------------------------------------------


def test_the_columns_of_parquet_that_are_used_are_read_as_their_types(tmp_path: Path) -> None:
    moments = pa.array([0, 86_400_000], pa.timestamp("ms"))
    parquet.write_table(pa.table({"n": pa.array([1, 2], pa.int32()), "s": ["a", None], "at": moments}), tmp_path / "f")
    files = table(
        {"s": STRING, "at": timestamp(3), "n": BIGINT}, connector="filesystem", path=str(tmp_path), format="parquet"
    )
    [batch] = read(connectors.source(files, "t", ("n", "at"))[0])
    assert batch.schema == pa.schema([("n", pa.int64()), ("at", pa.timestamp("us"))])
    assert [str(one) for one in batch.to_pydict()["at"]] == ["1970-01-01 00:00:00", "1970-01-02 00:00:00"]
    wrong = table({"s": INT}, connector="filesystem", path=str(tmp_path), format="parquet")
    with pytest.raises(TypeMismatchError, match="column 's' of type string cannot be read as int32"):
        read(connectors.source(wrong, "t", ("s",))[0])


def test_columns_may_be_in_another_order_and_those_that_a_file_lacks_are_null(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, columns in {"0": {"a": ["x"], "b": [1]}, "1": {"c": [0], "b": [2], "a": ["y"]}, "2": {"z": [3]}}.items():
        parquet.write_table(pa.table(columns), tmp_path / name)
    files = table({"a": STRING, "b": BIGINT}, connector="filesystem", path=str(tmp_path), format="parquet")
    source, _ = connectors.source(files, "t", ("a", "b"))
    assert isinstance(source, SplitSource)
    batches, enumerator = read(source), source.create_enumerator([])
    assert [enumerator.end_of(split, 0) for split in enumerator.discover(())] == [(1, True)] * 3
    assert sorted(str(row) for batch in batches for row in batch.to_pylist()) == [
        "{'a': 'x', 'b': 1}",
        "{'a': 'y', 'b': 2}",
        "{'a': None, 'b': None}",
    ]
    assert f"file {tmp_path / '2'} has no column a, b, which is NULL there" in caplog.text


def test_large_files_come_in_batches_and_a_range_has_its_rows(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"n": range(100_000)}), tmp_path / "f", row_group_size=70_000)
    source = connectors.source(
        table({"n": BIGINT}, connector="filesystem", path=str(tmp_path), format="parquet"), "t", ("n",)
    )[0]
    assert [len(batch) for batch in read(source)][0] == 65_536
    assert isinstance(source, SplitSource)
    [split], reader = source.create_enumerator([]).discover(()), source.create_reader()
    batches = [records.values for records in reader.read(SplitRange(split, 69_990, 70_010), 1_000)]
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(range(69_990, 70_010))
    assert reader.place_of(split.id, 3, 3) == f"file {tmp_path / 'f'}, row {70_010 - len(batches[-1]) + 3}"
    reader.close()


def test_a_line_that_cannot_be_read_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"n": 1}\n{"n": "x"}\n')
    source = connectors.source(
        table({"n": BIGINT}, connector="filesystem", path=str(tmp_path), format="json"), "t", ("n",)
    )[0]
    with pytest.raises(MalformedRecordError, match=r"line 2 \(byte 9\).*field 'n'"):
        read(source)


# --- options --------------------------------------------------------------------------------------------------------

SERVER = {"properties__bootstrap__servers": "localhost:1", "topic": "t", "scan__startup__mode": "earliest-offset"}
KAFKA = {"connector": "kafka", "format": "json", **SERVER}
KEYED = {"connector": "upsert-kafka", "key__format": "json", "value__format": "json", "topic": "t"}


def declared(*columns: ColumnDefinition, key: tuple[str, ...] = (), **options: str) -> TableDescriptor:
    given = table({}, **options).options
    return TableDescriptor(TableDefinition((ColumnDefinition("n", BIGINT), *columns), None, key, given))


def metadata(name: str, kind: LogicalType, key: str, virtual: bool = False) -> ColumnDefinition:
    return ColumnDefinition(name, kind, metadata=key, virtual=virtual)


FILES = {"connector": "filesystem", "path": "/", "format": "csv"}
BY_KEY = {**KAFKA, "key__format": "json", "key__fields": "n"}
OFFSETS = {**KAFKA, "scan__startup__mode": "specific-offsets", "scan__startup__specific_offsets": "0:7"}
BOTH = {"json__ignore_parse_errors": "true", "json__fail_on_missing_field": "true"}


def test_declarations_that_do_not_fit_together_are_refused() -> None:
    def check(write: bool, column: ColumnDefinition | None, options: dict[str, str], words: str) -> None:
        made = declared(*([column] if column else []), **options)
        with pytest.raises(ConfigurationError, match=words):
            if write:
                connectors.sink(made, "t")
            else:
                connectors.source(made, "t", ("n",))[0]

    hold(
        check,
        [
            (False, metadata("x", INT, "nonsense"), KAFKA, "'nonsense' .*topic, partition, offset"),
            (False, metadata("x", INT, "key"), FILES, "'key' .*the connector has no metadata"),
            (False, metadata("x", BIGINT, "timestamp"), KAFKA, r"BIGINT.*TIMESTAMP_LTZ\(3\)"),
            (True, metadata("x", INT, "partition"), KAFKA, "METADATA VIRTUAL, or one of timestamp, headers"),
            (False, None, {**KAFKA, "key__fields": "n"}, "'key.fields' and 'key.format' belong together"),
            (False, None, {**BY_KEY, "key__fields": "m"}, "the key field 'm' is no column"),
            (False, None, {**BY_KEY, "key__fields_prefix": "k_"}, "'n' does not begin with"),
            (False, None, {**BY_KEY, "key__fields_prefix": "n"}, "'value.fields-include' = 'EXCEPT_KEY'"),
            (False, None, KEYED, "PRIMARY KEY"),
            (True, None, KEYED, "PRIMARY KEY"),
            (False, None, {**KEYED, "key__format": "avro"}, "no format 'avro'.*'raw'"),
            (False, None, {**KAFKA, "format": "raw"}, "BIGINT.*STRING or BYTES"),
            (False, None, {**KAFKA, **BOTH}, "both"),
            (False, None, {**KAFKA, "scan__bounded__mode": "never"}, "latest-offset or group-offsets"),
            (False, None, OFFSETS, "partition:0,offset:42"),
        ],
    )


@pytest.mark.parametrize("number", ["0", "two"])
def test_a_sink_has_a_number_of_subtasks(number: str) -> None:
    with pytest.raises(ConfigurationError, match="'sink.parallelism'"):
        connectors.sink(declared(connector="print", sink__parallelism=number), "t")


def test_a_database_table_is_read_in_the_order_of_its_key() -> None:
    unkeyed = declared(connector="jdbc", url="jdbc:sqlite:/x", table_name="t")
    with pytest.raises(ConfigurationError, match="'scan.key-column'"):
        connectors.source(unkeyed, "t", ("n",))


@pytest.mark.parametrize("options", [{"wrong": "secret7"}, {"sink__max_retries": "secret7"}])
def test_values_of_options_are_in_no_error(options: dict[str, str]) -> None:
    given = {"connector": "jdbc", "url": "jdbc:sqlite:/x", "table_name": "t", "password": "secret7"} | options
    with pytest.raises(ConfigurationError) as raised:
        connectors.sink(declared(**given), "t")
    assert "secret7" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, b'{"n":null,"c":1E+1}'),
        ({"json__encode__ignore_null_fields": "true", "json__encode__decimal_as_plain_number": "true"}, b'{"c":10}'),
    ],
)
def test_fields_without_value_and_decimals_are_written_as_the_options_say(options: dict[str, str], line: bytes) -> None:
    made = DeclaredTable(
        declared(ColumnDefinition("c", decimal(10, 2)), connector="filesystem", path="/", format="json", **options), "t"
    )
    assert made.format is not None
    assert TableFormat(made, made.format, made.physical).writing().serialize(Row(None, Decimal("10.00"))) == line


# --- changes --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None]), st.integers(0, 1)), max_size=20))
def test_of_each_key_the_last_change_is_kept(changes: list[tuple[int, str | None, int]]) -> None:
    rows = [{"k": key, "j": j, "n": number} for number, (_, key, j) in enumerate(changes)]
    schema = pa.schema([("k", pa.string()), ("j", pa.int64()), ("n", pa.int64())])
    kinds = np.array([kind for kind, *_ in changes], np.int8)
    batch = ColumnBatch(pa.RecordBatch.from_pylist(rows, schema), kinds)
    last: dict[Any, tuple[int, bool]] = {}
    for number, (kind, *key) in enumerate(changes):
        last[tuple(key)] = (number, kind in (1, 3))
    kept = last_changes(batch, ("k", "j"))
    found = (
        list(zip(kept.columns.column("n").to_pylist(), (kept.kinds == 3).tolist(), strict=True)) if len(kept) else []
    )
    assert found == sorted(last.values())


def test_generated_values_vary_as_the_options_say() -> None:
    fields = {"fields__s__length": "9", "fields__s__var_len": "true", "fields__x__null_rate": "0.5"}
    past = {"fields__at__max_past": "1 d"}
    columns = [ColumnDefinition("s", STRING), ColumnDefinition("x", INT), ColumnDefinition("at", timestamp(3))]
    made = declared(*columns, connector="datagen", number_of_rows="300", rows_per_second="100000", **fields, **past)
    source, _ = connectors.source(made, "g", ("at", "s", "x"))
    stream = new_environment().from_source(source, WatermarkStrategy.no_watermarks(), "g")
    with stream.execute_and_collect() as found:
        rows = list(found)
    assert rows[0].as_dict().keys() == {"at", "s", "x"}
    assert {len(row.s) for row in rows} == set(range(1, 10))
    assert 100 < sum(row.x is None for row in rows) < 200
    assert max(row["at"] for row in rows) - min(row["at"] for row in rows) > datetime.timedelta(hours=12)
