"""``flinkish.datastream.connectors.base``."""

from __future__ import annotations

from flinkish.connectors.kafka.delivery_guarantee import DeliveryGuarantee
from flinkish.core.sink import Sink
from flinkish.core.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
