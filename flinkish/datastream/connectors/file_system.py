"""``flinkish.datastream.connectors.file_system``."""

from __future__ import annotations

from flinkish.connectors.file_system.sink import FileSink
from flinkish.connectors.file_system.sink_options import (
    BucketAssigner,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from flinkish.connectors.file_system.source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from flinkish.connectors.file_system.stream_format import BulkFormat, StreamFormat

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
