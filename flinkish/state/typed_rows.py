"""Converts the rows of one state, whose columns are texts, to rows of typed columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo.arrow import arrow_array
from flinkish.common.typeinfo.base import Mismatch
from flinkish.errors import SavepointError
from flinkish.runtime.state.saved.texts import SavepointRow, from_savepoint_row
from flinkish.runtime.state.state_rows import MAP_KINDS, DeclaredState, StateRow
from flinkish.runtime.stored.texts import to_text
from flinkish.spark.worker import DeployedClasses, failures_marked

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
