"""``flinkish.datastream.connectors.hybrid_source``: PyFlink's names."""

from __future__ import annotations

from flinkish.connectors.hybrid_source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
