"""Re-exports the source and the sink of Delta tables."""

from __future__ import annotations

from flinkish.connectors.delta_source import DeltaSource
from flinkish.connectors.frame_sinks import DeltaSink

__all__ = ["DeltaSink", "DeltaSource"]
