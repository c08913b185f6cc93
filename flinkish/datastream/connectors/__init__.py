"""Re-exports sources and sinks at PyFlink's module paths; they are defined in ``flinkish.connectors``."""

from __future__ import annotations

from flinkish.datastream.connectors.base import DeliveryGuarantee, Sink, Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
