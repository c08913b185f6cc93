"""``flinkish.datastream.connectors.jdbc``."""

from __future__ import annotations

from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.jdbc.source import JdbcSource

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink", "JdbcSource"]
