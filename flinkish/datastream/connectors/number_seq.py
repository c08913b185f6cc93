"""``flinkish.datastream.connectors.number_seq``."""

from __future__ import annotations

from flinkish.connectors.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
