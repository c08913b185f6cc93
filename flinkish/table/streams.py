"""What a program has as tables: Python objects with the types that these have, DataFrames, and streams: which of their
fields become columns, and what is event time.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from flinkish.common.arguments import check_instance, kind_of
from flinkish.common.time import Instant
from flinkish.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.types import Row
from flinkish.datastream import DataStream
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError
from flinkish.table import logical_types as types
from flinkish.table import planner, syntax
from flinkish.table.casts import zone_name
from flinkish.table.expression import Expression
from flinkish.table.logical_types import LogicalType, of_type_info
from flinkish.table.plan import Changes, Field, Relation, Rows, StreamScan, TimeAttribute, row_type_of, schema_of
from flinkish.table.resolved import implicitly
from flinkish.table.schema import Schema
from flinkish.table.syntax import ColumnDefinition, TableDefinition

if TYPE_CHECKING:
    import pandas as pd

    from flinkish.table.catalog import Catalog

__all__ = ["ChangelogMode"]

_WHERE = "from_data_stream()"
_MARKS_OF_SOURCE = syntax.Call("SOURCE_WATERMARK")
#: The types of Python's classes, as PyFlink has them. A subclass stands before its base.
_CLASSES: dict[type, LogicalType] = {
    bool: types.BOOLEAN, int: types.BIGINT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES,
    bytearray: types.BYTES, Decimal: types.decimal(38, 18), datetime.datetime: types.timestamp_ltz(6),
    Instant: types.timestamp_ltz(9), datetime.date: types.DATE, datetime.time: types.time(0),
    datetime.timedelta: types.INTERVAL_DAY, type(None): types.NULL,
}  # fmt: skip
_OF_VALUES = "from_elements()"


@dataclass(frozen=True)
class ChangelogMode:
    """Which kinds of changes a stream has (``pyflink.table.ChangelogMode``)."""

    changes: Changes
    #: without what was before an update: the primary key says which row it replaces
    is_upsert: bool = False

    @staticmethod
    def insert_only() -> ChangelogMode:
        return ChangelogMode(Changes.INSERT)

    @staticmethod
    def all() -> ChangelogMode:
        return ChangelogMode(Changes.RETRACT)

    @staticmethod
    def upsert(key_only_deletes: bool = True) -> ChangelogMode:
        return ChangelogMode(Changes.RETRACT, True)


def table_of(
    catalog: Catalog, stream: DataStream, given: Sequence[Any] = (), mode: ChangelogMode | None = None
) -> Relation:
    """A stream as a relation. ``given``: a Schema, or expressions that name fields; ``mode``: by default, rows are only
    inserted.

    Raises:
        ProgramError: the stream has no declared type, or not the columns that are wanted.
    """
    check_instance(stream, DataStream, "the stream is", _WHERE, "such as env.from_source(...)")
    fields = _fields(stream)
    given = [each for each in given if each is not None]
    changes, is_upsert = (Changes.INSERT, False) if mode is None else (mode.changes, mode.is_upsert)
    if given and not isinstance(given[0], Schema):
        return _by_expressions(stream, fields, given, changes, catalog)
    wanted = given[0].definition if given else TableDefinition()
    physical = [column for column in wanted.columns if column.type is not None and column.metadata is None]
    if not physical:
        # as in Flink, a schema without stored columns takes all
        physical = [ColumnDefinition(name, kind) for name, kind in fields.items()]
        wanted = replace(wanted, columns=(*physical, *wanted.columns))
    positions, names = _positions(fields, physical), list(fields)
    times = [column for column in wanted.columns if column.metadata is not None]
    for column in times:
        if column.metadata != "rowtime" or column.type is None or not column.type.root.startswith("TIMESTAMP"):
            what = f"the metadata '{column.metadata}' of type {column.type}"
            expected = "'rowtime', the timestamps of the records, as TIMESTAMP_LTZ(3)"
            raise ProgramError(what, where=_WHERE, expected=expected)
    if any(column.expression is not None for column in wanted.columns):
        # computed columns may name fields that become no column
        rest_of = [name for name in fields if name not in {column.name for column in wanted.columns}]
        physical += [ColumnDefinition(name, fields[name]) for name in rest_of if names.index(name) not in positions]
        positions = (*positions, *(at for at in range(len(fields)) if at not in positions))[: len(physical)]
    stored = tuple(Field(column.name, column.type) for column in (*physical, *times[:1]) if column.type is not None)
    time = times[0].name if times else None
    if wanted.watermark is not None and wanted.watermark[1] == _MARKS_OF_SOURCE:
        marked, wanted = wanted.watermark[0], replace(wanted, watermark=None)
        stored = tuple(f._replace(time=TimeAttribute.ROWTIME) if f.name == marked else f for f in stored)
    of_key = tuple(each for each in zip(stored, positions, strict=False) if each[0].name in wanted.primary_key)
    if is_upsert and not of_key:
        hint = "Schema.new_builder().primary_key('name').build()"
        raise ProgramError("a stream of upserts without a primary key", where=_WHERE, expected="one", hint=hint)
    key = of_key if is_upsert else ()
    scan = StreamScan(stored, changes, wanted.primary_key, _bounded(stream), stream, positions, time, key)
    return planner.Planner(catalog).completed(scan, wanted)


def _by_expressions(
    stream: DataStream, fields: dict[str, LogicalType], given: Sequence[Any], changes: Changes, catalog: Catalog
) -> Relation:
    """The columns that expressions name: ``col("a")``, its alias, ``col("t").rowtime`` or ``col("p").proctime``."""
    picked: list[tuple[str, str, str]] = []
    for each in given:
        if isinstance(each, str):
            picked.append((each, each, ""))
            continue
        check_instance(each, Expression, "the field is", _WHERE, "such as col('a')")
        node: syntax.Expression = each._node
        name, kind = "", ""
        if isinstance(node, syntax.Alias):
            name, node = node.name, node.operand
        if isinstance(node, syntax.Call) and node.name in ("ROWTIME", "PROCTIME") and len(node.args) == 1:
            kind, node = node.name, node.args[0]
        if not isinstance(node, syntax.Column) or len(node.path) != 1:
            raise ProgramError(f"the field {each}", where=_WHERE, expected="col('a'), its alias, rowtime or proctime")
        picked.append((node.path[0], name or node.path[0], kind))
    stored = [(source, name) for source, name, kind in picked if not kind]
    by_name = any(source in fields for source, _ in stored)
    names = list(fields)
    if by_name and not all(source in fields for source, _ in stored) or len(stored) > len(names):
        raise ProgramError(f"the columns {[source for source, _ in stored]}", where=_WHERE, expected=f"among {names}")
    positions = tuple(names.index(source) if by_name else at for at, (source, _) in enumerate(stored))
    columns = [Field(name, fields[names[at]]) for at, (_, name) in zip(positions, stored, strict=True)]
    time = next((name for _, name, kind in picked if kind == "ROWTIME"), None)
    if time is not None:
        columns.append(Field(time, types.timestamp(3), TimeAttribute.ROWTIME))
    scan = StreamScan(tuple(columns), changes, (), _bounded(stream), stream, positions, time)
    clock = syntax.Call("PROCTIME")
    items = [syntax.Alias(clock if kind == "PROCTIME" else syntax.Column((name,)), name) for _, name, kind in picked]
    return planner.resolve(syntax.Select(tuple(items), syntax.Resolved(scan)), catalog)


def _positions(fields: dict[str, LogicalType], wanted: Sequence[ColumnDefinition]) -> tuple[int, ...]:
    """The positions of the fields that become these columns: by names, or, if the stream has none of them, by order."""
    names, columns = list(fields), [column.name for column in wanted]
    by_name = not set(names).isdisjoint(columns)
    if by_name and not set(columns) <= set(names):
        raise ProgramError(f"the columns {columns}", where=_WHERE, expected=f"columns among {names}")
    positions = [names.index(name) for name in columns] if by_name else list(range(len(columns)))
    found = [fields[names[position]] for position in positions if position < len(names)]
    fits = [
        kind == each.type or each.type is not None and implicitly(kind, each.type)
        for kind, each in zip(found, wanted, strict=False)
    ]
    if len(found) != len(wanted) or not by_name and len(names) != len(wanted) or not all(fits):
        have = ", ".join(f"{name} {kind}" for name, kind in fields.items())
        asked = ", ".join(f"{column.name} {column.type}" for column in wanted)
        raise ProgramError(f"the columns are ({have})", where=_WHERE, expected=f"in their order ({asked})")
    return tuple(positions)


def _fields(stream: DataStream) -> dict[str, LogicalType]:
    kind = stream.get_type()
    if isinstance(kind, PickledBytesTypeInfo):
        hint = "call map(..., output_type=Types.ROW_NAMED([...], [...]))"
        raise ProgramError("the stream has no declared type", where=_WHERE, expected="a type with columns", hint=hint)
    if isinstance(kind, RowTypeInfo):
        names, kinds = kind.get_field_names(), kind.get_field_types()
    else:
        kinds = kind.get_field_types() if isinstance(kind, TupleTypeInfo) else [kind]
        names = [f"f{index}" for index in range(len(kinds))]
    return dict(zip(names, map(of_type_info, kinds), strict=True))


def _bounded(stream: DataStream) -> bool:
    found, work = True, [tap.node for tap in stream._taps]
    seen = set()
    while work:
        node = work.pop()
        if id(node) not in seen:
            seen.add(id(node))
            found = found and (node.source is None or node.source.bounded)
            work += [tap.node for taps in node.taps for tap in taps]
    return found


def from_elements(elements: Iterable[Any], schema: Any, zone: str) -> Rows:
    """The relation of these tuples, lists, Rows, dicts or objects. ``schema``: their ROW type, or the names of columns;
    ``zone``: of datetimes without one, if their column is a TIMESTAMP_LTZ.

    Raises:
        TypeError, ValueError: a type cannot be told, or a value does not fit its type.
    """
    records, names = list(elements), None if isinstance(schema, TypeInformation) else schema
    if isinstance(schema, TypeInformation):
        kind = of_type_info(schema)
        if kind.root != "ROW":
            kind, records = types.row(["value"], [kind]), [(record,) for record in records]
    elif not records:
        expected = "elements, or DataTypes.ROW([...])"
        raise ArgumentValueError("there are no elements", where=_OF_VALUES, expected=expected)
    else:
        kind = _type_of_records([_as_dict(record, names) for record in records])
    rows = [_values(record, kind, names) for record in records]
    local = ZoneInfo(zone_name(zone))
    for at, part in enumerate(kind.parts):
        for row in rows if part.root == "TIMESTAMP_LTZ" else ():
            if isinstance(row[at], datetime.datetime) and row[at].tzinfo is None:
                row[at] = row[at].replace(tzinfo=local)
    fields = tuple(map(Field, kind.names, kind.parts))
    batch = RecordWriter(row_type_of(fields), _OF_VALUES).write([tuple(row) for row in rows])
    return Rows(fields, Changes.INSERT, (), True, pa.Table.from_batches([batch]))


def from_expressions(nodes: Sequence[syntax.Expression], schema: Any, catalog: Catalog) -> Relation:
    """The relation of rows that are computed: calls of `row`, or the values of the only column."""
    rows = tuple(node.args if isinstance(node, syntax.Call) and node.name == "ROW" else (node,) for node in nodes)
    found = planner.resolve(syntax.Values(rows), catalog)
    columns: list[syntax.Expression] = [syntax.Column((field.name,)) for field in found.fields]
    names = found.names if schema is None else schema
    if isinstance(schema, TypeInformation):
        kind = of_type_info(schema)
        columns, names = list(map(syntax.Cast, columns, kind.parts)), kind.names
    items = tuple(syntax.Alias(column, name) for column, name in zip(columns, names, strict=True))
    return planner.resolve(syntax.Select(items, syntax.Resolved(found)), catalog)


def from_pandas(frame: pd.DataFrame, schema: Any) -> Rows:
    """The relation of a DataFrame. ``schema``: a ROW type, the names of the columns, or their types."""
    import pandas

    if not isinstance(frame, pandas.DataFrame):
        raise ArgumentTypeError(f"the frame is {kind_of(frame)}", where="from_pandas()", expected="a pandas.DataFrame")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    names, kinds = [str(name) for name in table.schema.names], [_of_arrow(field.type) for field in table.schema]
    if isinstance(schema, RowTypeInfo):
        of = of_type_info(schema)
        names, kinds = list(of.names), list(of.parts)
    elif schema is not None:
        given = list(schema)
        if len(given) != len(names) or not all(isinstance(each, (str, TypeInformation)) for each in given):
            what = f"the schema {given!r:.200} for the columns {', '.join(names)}"
            raise ArgumentTypeError(what, where="from_pandas()", expected="a name, or a type, for each column")
        if isinstance(given[0], str):
            names = given
        else:
            kinds = [of_type_info(each) for each in given]
    fields = tuple(map(Field, names, kinds))
    return Rows(fields, Changes.INSERT, (), True, table.rename_columns(names).cast(schema_of(fields), safe=False))


def _of_arrow(arrow: pa.DataType) -> LogicalType:
    simple = {
        pa.bool_(): types.BOOLEAN, pa.int8(): types.TINYINT, pa.int16(): types.SMALLINT, pa.int32(): types.INT,
        pa.int64(): types.BIGINT, pa.float32(): types.FLOAT, pa.float64(): types.DOUBLE, pa.string(): types.STRING,
        pa.large_string(): types.STRING, pa.binary(): types.BYTES, pa.date32(): types.DATE, pa.null(): types.STRING,
        pa.uint8(): types.SMALLINT, pa.uint16(): types.INT, pa.uint32(): types.BIGINT, pa.uint64(): types.BIGINT,
    }  # fmt: skip
    if arrow in simple:
        return simple[arrow]
    if pa.types.is_timestamp(arrow):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[arrow.unit]
        return types.timestamp(digits) if arrow.tz is None else types.timestamp_ltz(digits)
    if pa.types.is_decimal(arrow):
        return types.decimal(arrow.precision, arrow.scale)
    if pa.types.is_time(arrow):
        return types.time(0)
    if pa.types.is_duration(arrow):
        return types.INTERVAL_DAY
    if pa.types.is_list(arrow):
        return types.array(_of_arrow(arrow.value_type))
    if pa.types.is_struct(arrow):
        return types.row([field.name for field in arrow], [_of_arrow(field.type) for field in arrow])
    raise ArgumentTypeError(f"a column of type {arrow}", where="from_pandas()", expected="a schema that declares it")


def _as_dict(record: Any, names: Sequence[str] | None) -> dict[str, Any]:
    if isinstance(record, dict):
        return dict(sorted(record.items()))
    if isinstance(record, (Row, tuple, list)):
        found = getattr(record, "_fields", None) or list(names or ())[: len(record)]
        found = [*found, *(f"_{at}" for at in range(len(found) + 1, len(record) + 1))]
        return dict(zip(found, record, strict=True))
    if hasattr(record, "__dict__"):
        return dict(sorted(vars(record).items()))
    what = f"the element {record!r:.100} is {kind_of(record)}"
    raise ArgumentTypeError(what, where=_OF_VALUES, expected="a tuple or a Row")


def _values(record: Any, kind: LogicalType, names: Sequence[str] | None) -> list[Any]:
    if isinstance(record, (tuple, list, Row)) and not hasattr(record, "_fields"):
        values = list(record)
    else:
        values = list(map(_as_dict(record, names).get, kind.names))
    if len(values) != len(kind.names):
        expected = f"one for each of {', '.join(kind.names)}"
        raise ArgumentValueError(f"{len(values)} values: {record!r:.100}", where=_OF_VALUES, expected=expected)
    return values


def _type_of_records(records: Sequence[dict[str, Any]]) -> LogicalType:
    names = list(dict.fromkeys(name for record in records for name in record))
    parts = [_type_of([record.get(name) for record in records], name) for name in names]
    return types.row(names, parts)


def _type_of(values: Sequence[Any], name: str) -> LogicalType:
    there = [value for value in values if value is not None]
    kinds = {_kind(value) for value in there}
    if len(kinds) != 1:
        found = " and ".join(sorted(kind.__name__ for kind in kinds)) or "only None"
        what, hint = f"the type of '{name}' cannot be told: {found}", "from_elements(elements, DataTypes.ROW([...]))"
        raise ArgumentTypeError(what, where=_OF_VALUES, expected="values of one class", hint=hint)
    kind = kinds.pop()
    if kind in _CLASSES:
        return _CLASSES[kind]
    if kind is dict:
        keys = _type_of([key for value in there for key in value], f"a key of {name}")
        return types.map_of(keys, _type_of([item for value in there for item in value.values()], f"a value of {name}"))
    if kind is list:
        return types.array(_type_of([item for value in there for item in value], f"an element of {name}"))
    if kind is Row:
        return _type_of_records([_as_dict(value, None) for value in there])
    what = f"there is no type for {kind.__name__} ('{name}')"
    raise ArgumentTypeError(what, where=_OF_VALUES, hint="give a DataType")


def _kind(value: Any) -> type:
    if isinstance(value, (Row, tuple)):
        return Row
    return next((kind for kind in (*_CLASSES, dict, list) if isinstance(value, kind)), type(value))
