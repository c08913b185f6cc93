"""Re-exports the source that reads a Spark DataFrame, and the sink that hands DataFrames to a function."""

from __future__ import annotations

from flinkish.connectors.frame_sinks import FunctionSink
from flinkish.connectors.spark import SparkSource

__all__ = ["FunctionSink", "SparkSource"]
