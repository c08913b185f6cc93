"""``flinkish.datastream.connectors.base``: PyFlink's, and what sources and sinks in Python are made of."""

from __future__ import annotations

from flinkish.connectors.kafka.delivery_guarantee import DeliveryGuarantee
from flinkish.connectors.paged_source import Page, PagedSource
from flinkish.core.sink import (
    CommitContext,
    Committer,
    Guarantee,
    Sink,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
    WriterSink,
)
from flinkish.core.source import (
    Source,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    SplitRange,
    SplitReader,
    SplitRecords,
    SplitSource,
    UnitCost,
)

__all__ = [
    "CommitContext",
    "Committer",
    "DeliveryGuarantee",
    "Guarantee",
    "Page",
    "PagedSource",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceSplit",
    "SplitEnumerator",
    "SplitEnumeratorContext",
    "SplitRange",
    "SplitReader",
    "SplitRecords",
    "SplitSource",
    "StreamTransformer",
    "SupportsPreprocessing",
    "UnitCost",
    "WriterSink",
]
