"""Re-exports NumberSequenceSource at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.connectors.generated import NumberSequenceSource

__all__ = ["NumberSequenceSource"]

supply_names(__name__, "datastream.connectors.base")
