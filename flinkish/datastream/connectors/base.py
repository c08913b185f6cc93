"""Re-exports the names of PyFlink's module ``connectors.base``, and the base classes for sources and sinks that are
written in Python."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.connectors.kafka.properties import DeliveryGuarantee
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

supply_names(__name__)
