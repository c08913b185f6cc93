"""Sources and sinks at PyFlink's paths; defined in ``flinkish.connectors``."""

from __future__ import annotations

from flinkish.datastream.connectors.base import DeliveryGuarantee, Sink, Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
