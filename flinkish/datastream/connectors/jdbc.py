"""Re-exports the source and the sink of SQL databases at PyFlink's module path."""

from __future__ import annotations

from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink", "JdbcSource"]
