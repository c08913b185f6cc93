"""Converts the rows of a DataFrame with typed columns to the rows of a savepoint's table, whose columns are texts, and
the rows of one state of such a table back to typed columns.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flinkish.common.arguments import abbreviated
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.arrow import arrow_array
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.types import Row
from flinkish.errors import FlinkishError, SavepointError
from flinkish.runtime.state.saved.texts import SavepointRow, from_savepoint_row
from flinkish.runtime.state.saved.values import check_shape
from flinkish.runtime.state.state_rows import MAP_KINDS, SHARED_KINDS, DeclaredState, StateRow
from flinkish.runtime.stored.texts import to_text
from flinkish.spark.worker import DeployedClasses, failures_marked

_SCHEMA = pa.schema([(name, pa.string()) for name in SavepointRow._fields])


@dataclass(frozen=True)
class NativeToTexts:
    """The function of the Spark tasks that convert the rows.

    Args:
        columns: the names of the input's columns, in order.
        states: (uid, state name) -> the declared type of the values.
        texts: whether key, map_key and value already hold the texts of a savepoint's table.
        deployed: the classes of the program that values may be instances of.
    """

    columns: tuple[str, ...]
    states: dict[tuple[str, str], TypeInformation]
    texts: bool
    deployed: DeployedClasses

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one partition.

        Raises:
            SavepointError: a row cannot be one of a savepoint; the error names the row.
        """
        with failures_marked(self.deployed.secret):
            for batch in batches:
                types = {name: column.type for name, column in zip(self.columns, batch.columns)}
                rows = []
                for values in zip(*(column.to_pylist() for column in batch.columns)):
                    rows.extend(self._checked(dict(zip(self.columns, values)), types))
                if rows:
                    arrays = [pa.array(column, pa.string()) for column in zip(*rows)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

    def _checked(self, row: dict[str, Any], types: dict[str, pa.DataType]) -> list[SavepointRow]:
        try:
            made = self._rows(row, types)
            for saved in made:
                check_shape(from_savepoint_row(saved, self.deployed.classes())[1])
            return made
        except FlinkishError as error:
            where = f"uid {row['uid']}, state {row['state']}, key {str(row['key'])[:100]}"
            raise SavepointError(
                f"a row cannot be one of a savepoint: {error.what}",
                where=where,
                expected=error.expected,
                hint="mend the row in the DataFrame",
            ) from error

    def _rows(self, row: dict[str, Any], types: dict[str, pa.DataType]) -> list[SavepointRow]:
        for name in ("uid", "state"):
            if not isinstance(row[name], str) or not row[name]:
                raise SavepointError(f"its {name} is {abbreviated(row[name])}", expected="a text")
        kind = row.get("kind") or ("map" if row.get("map_key") is not None else "value")
        namespace = row.get("namespace") or "null"
        if self.texts:
            return [self._text_row(row, kind, namespace)]
        key = python_value(row["key"], types["key"], as_key=True)
        if key is None and kind not in SHARED_KINDS:
            raise SavepointError("its key is NULL", expected="a key")
        declared = self.states.get((row["uid"], row["state"]))
        return [
            SavepointRow(row["uid"], row["state"], kind, to_text(key), namespace, to_text(value))
            for value in _values(row, kind, types, declared)
        ]

    @staticmethod
    def _text_row(row: dict[str, Any], kind: str, namespace: str) -> SavepointRow:
        value = row["value"]
        if kind in MAP_KINDS and row.get("map_key") is not None:
            value = f'{{"$tuple": [{row["map_key"]}, {value}]}}'
        return SavepointRow(row["uid"], row["state"], kind, row["key"], namespace, value)


def _values(
    row: dict[str, Any], kind: str, types: dict[str, pa.DataType], declared: TypeInformation | None
) -> list[Any]:
    """The values of the rows that an input row stands for: one value, or for a whole map one per entry."""

    def typed(value: Any) -> Any:
        if declared is None or value is None:
            return value
        converted = declared.convert(value)
        if not _is_same(converted, value):
            raise SavepointError(
                f"its value {abbreviated(value)} would become {abbreviated(converted)}",
                expected=f"a value of the declared type {declared!r}",
            )
        return converted

    value = python_value(row["value"], types["value"])
    if kind in MAP_KINDS and row.get("map_key") is not None:
        return [(python_value(row["map_key"], types["map_key"], as_key=True), typed(value))]
    if value is None:
        raise SavepointError("its value is NULL", expected="a value; leave out the row where there is none")
    if kind in MAP_KINDS:
        if not isinstance(value, dict):
            raise SavepointError("it is of map state and has no map_key", expected="a map_key, or a map as value")
        return [(key, typed(item)) for key, item in value.items()]
    if kind == "list":
        if not isinstance(value, list):
            raise SavepointError(f"it is of list state and its value is {abbreviated(value)}", expected="an array")
        return [[typed(item) for item in value]]
    return [typed(value)]


def _is_same(converted: Any, given: Any) -> bool:
    """Whether a value that was converted to its declared type is still the same: no number was wrapped or rounded."""
    if isinstance(converted, bytes) and isinstance(given, list):
        return all(-128 <= item <= 255 for item in given)
    if isinstance(converted, dict) and isinstance(given, dict):
        pairs = zip(converted.items(), given.items(), strict=False)
        return len(converted) == len(given) and all(_is_same(*pair) for pair in pairs)
    if isinstance(converted, (Row, tuple, list)) and isinstance(given, (Row, tuple, list)):
        return len(converted) == len(given) and all(map(_is_same, converted, given))
    return bool(converted == given or converted != converted and given != given)


def python_value(value: Any, arrow: pa.DataType, as_key: bool = False) -> Any:
    """A value as user code would hold it: structs are Rows, or tuples in a key; lists are tuples in a key; timestamps
    are UTC and have no time zone."""
    if value is None:
        return None
    types = pa.types
    if types.is_struct(arrow):
        parts = [python_value(value[field.name], field.type, as_key) for field in arrow]
        if as_key:
            return tuple(parts)
        row = Row(*parts)
        row.set_field_names([field.name for field in arrow])
        return row
    if types.is_map(arrow):
        return {python_value(k, arrow.key_type, True): python_value(v, arrow.item_type) for k, v in value}
    if types.is_list(arrow) or types.is_large_list(arrow):
        items = [python_value(item, arrow.value_type, as_key) for item in value]
        return tuple(items) if as_key else items
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return value


#: (pattern of a text, type that it stands for); the first pattern that matches counts.
_LOOKS = (('^"', "STRING"), ("^-?[0-9]{1,18}$", "BIGINT"), ("^(true|false)$", "BOOLEAN"), ("^-?[0-9.eE+-]+$", "DOUBLE"))


def typed_rows(spark: Any, table: Any, state: DeclaredState, deployed: DeployedClasses) -> Any:
    """The rows of one state as a DataFrame of typed columns. Keys and single values without a declared type get the
    type that all their texts have in common, if there is one; entries of maps and elements of lists stay texts."""
    key_type = state.key_type or _common_type(table, "key")
    value_type = state.value_type
    if value_type is None and state.kind not in (*MAP_KINDS, "list"):
        value_type = _common_type(table, "value")
    if state.kind in MAP_KINDS:
        values = f"map_key {state.map_key_type or 'STRING'}, map_value {value_type or 'STRING'}"
    elif state.kind == "list":
        values = f"value ARRAY<{value_type or 'STRING'}>"
    else:
        values = f"value {value_type or 'STRING'}"
    schema = f"key {key_type or 'STRING'}, namespace STRING, {values}"
    texts = frozenset(
        name
        for name, known in (("key", key_type), ("map_key", state.map_key_type), ("value", value_type))
        if known is None
    )
    convert = TextsToTyped(state.kind, _arrow_schema(spark, schema), texts, deployed)
    return table.mapInArrow(convert, schema)


def _common_type(table: Any, column: str) -> str | None:
    """The type that all texts of a column have in common; None: there is no such type."""
    cases = " ".join(f"WHEN {column} RLIKE '{pattern}' THEN '{name}'" for pattern, name in _LOOKS)
    looks = table.selectExpr(f"CASE {cases} ELSE '' END AS look").distinct().collect()
    found = {row["look"] for row in looks}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return found.pop() or None if len(found) == 1 else None


def _arrow_schema(spark: Any, ddl: str) -> pa.Schema:
    from flinkish.launch.spark_version import arrow_schema_in_utc

    schema: pa.Schema = arrow_schema_in_utc(spark.createDataFrame([], ddl).schema)
    return schema


@dataclass(frozen=True)
class TextsToTyped:
    """The function of the Spark tasks that convert the rows of one state.

    Args:
        kind: the kind of the state.
        schema: the schema of the result.
        texts: the columns that hold texts, because no type is known for them.
        deployed: the classes of the program that values may be instances of.
    """

    kind: str
    schema: pa.Schema
    texts: frozenset[str]
    deployed: DeployedClasses

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one partition.

        Raises:
            SavepointError: a value does not fit its declared type; the error names the row.
        """
        with failures_marked(self.deployed.secret):
            for batch in batches:
                saved = [SavepointRow(*values) for values in zip(*(column.to_pylist() for column in batch.columns))]
                if saved:
                    columns = zip(*map(self._row, saved))
                    arrays = [self._column(saved, *pair) for pair in zip(columns, self.schema)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _row(self, saved: SavepointRow) -> tuple[Any, ...]:
        if saved.namespace is None:
            saved = saved._replace(namespace="null")
        _, row = from_savepoint_row(saved, self.deployed.classes())
        namespace = None if row.namespace is None else saved.namespace
        return self._value("key", row.key), namespace, *self._values(row)

    def _column(self, saved: list[SavepointRow], values: tuple[Any, ...], field: pa.Field) -> pa.Array:
        try:
            return arrow_array(values, field.type)
        except Mismatch:
            for row, value in zip(saved, values):
                self._check(row, value, field)
            raise

    @staticmethod
    def _check(saved: SavepointRow, value: Any, field: pa.Field) -> None:
        try:
            arrow_array([value], field.type)
        except Mismatch as mismatch:
            place = ", ".join((f"column '{field.name}'", *mismatch.path))
            raise SavepointError(
                f"the value {mismatch.value!r:.200} does not fit the declared type",
                where=f"uid {saved.uid}, state {saved.state}, key {saved.key[:100]}, {place}",
                expected=mismatch.expected,
                hint="read the rows as texts (without the state's name), or mend the row",
            ) from None

    def _values(self, row: StateRow) -> tuple[Any, ...]:
        if self.kind in MAP_KINDS:
            key, value = row.value
            return self._value("map_key", key), self._value("map_value", value, "value")
        if self.kind == "list" and "value" in self.texts:
            return ([to_text(item, self.deployed.classes()) for item in row.value],)
        return (self._value("value", row.value),)

    def _value(self, column: str, value: Any, text_name: str | None = None) -> Any:
        return to_text(value, self.deployed.classes()) if (text_name or column) in self.texts else value
