"""flinkish.table: tables as the sources and sinks of DataStream programs, and the types of columns. There is no Table
API."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.common.types import Row
from flinkish.table.schema import Schema
from flinkish.table.table_environment import (
    EnvironmentSettings,
    StatementSet,
    StreamTableEnvironment,
    Table,
    TableConfig,
    TableResult,
)
from flinkish.table.types import DataTypes

__all__ = [
    "DataTypes",
    "EnvironmentSettings",
    "Row",
    "Schema",
    "StatementSet",
    "StreamTableEnvironment",
    "Table",
    "TableConfig",
    "TableResult",
]

supply_names(__name__, "common.types")
