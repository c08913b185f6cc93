"""Re-exports the source and the sink of Delta tables."""

from __future__ import annotations

from flinkish.connectors.frame_sinks import DeltaSink
from flinkish.connectors.spark import DeltaSource

__all__ = ["DeltaSink", "DeltaSource"]
