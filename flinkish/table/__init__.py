"""flinkish.table: SQL and the Table API, under PyFlink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkish.common.no_effect import supply_names
from flinkish.common.types import Row, RowKind

if TYPE_CHECKING:
    from flinkish.table.expression import Expression
    from flinkish.table.schema import FormatDescriptor, Schema, TableDescriptor
    from flinkish.table.streams import ChangelogMode
    from flinkish.table.table import GroupedTable, GroupWindowedTable, Table, TablePipeline, WindowGroupedTable
    from flinkish.table.table_config import EnvironmentSettings, SqlDialect, TableConfig
    from flinkish.table.table_environment import ExplainDetail, StatementSet, StreamTableEnvironment, TableEnvironment
    from flinkish.table.table_result import ResultKind, TableResult, TableSchema
    from flinkish.table.types import DataTypes
    from flinkish.table.udf import FunctionContext, ScalarFunction

__all__ = [
    "ChangelogMode",
    "DataTypes",
    "EnvironmentSettings",
    "ExplainDetail",
    "Expression",
    "FormatDescriptor",
    "FunctionContext",
    "GroupWindowedTable",
    "GroupedTable",
    "ResultKind",
    "Row",
    "RowKind",
    "ScalarFunction",
    "Schema",
    "SqlDialect",
    "StatementSet",
    "StreamTableEnvironment",
    "Table",
    "TableConfig",
    "TableDescriptor",
    "TableEnvironment",
    "TablePipeline",
    "TableResult",
    "TableSchema",
    "WindowGroupedTable",
]

# workers import the expressions of queries alone
supply_names(
    __name__,
    "table.types",
    "table.expression",
    "table.schema",
    "table.table_config",
    "table.udf",
    "table.table_result",
    "table.table",
    "table.streams",
    "table.table_environment",
)
