"""``flinkish.datastream.connectors.base``: PyFlink's, and what a source in Python is made of."""

from __future__ import annotations

from flinkish.connectors.kafka.delivery_guarantee import DeliveryGuarantee
from flinkish.core.sink import Sink, StreamTransformer, SupportsPreprocessing
from flinkish.core.source import (
    Source,
    SourceSplit,
    SplitEnumerator,
    SplitRange,
    SplitReader,
    SplitRecords,
    SplitSource,
    UnitCost,
)

__all__ = [
    "DeliveryGuarantee",
    "Sink",
    "Source",
    "SourceSplit",
    "SplitEnumerator",
    "SplitRange",
    "SplitReader",
    "SplitRecords",
    "SplitSource",
    "StreamTransformer",
    "SupportsPreprocessing",
    "UnitCost",
]
