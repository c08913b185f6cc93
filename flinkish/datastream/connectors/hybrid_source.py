"""Re-exports HybridSource, which reads several sources one after another, at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.connectors.hybrid_source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]

supply_names(__name__, "datastream.connectors.base")
