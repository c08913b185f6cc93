"""Re-exports NumberSequenceSource at PyFlink's module path."""

from __future__ import annotations

from flinkish.connectors.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
