"""flinkish.common: PyFlink's ``pyflink.common`` in plain Python; of flinkish it imports only ``flinkish.errors``."""

from __future__ import annotations

import importlib
from typing import Any

from flinkish.common.completable_future import CompletableFuture
from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.configuration import Configuration
from flinkish.common.execution_config import ExecutionConfig
from flinkish.common.input_dependency_constraint import InputDependencyConstraint
from flinkish.common.job_client import JobClient
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from flinkish.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from flinkish.common.serializer import TypeSerializer
from flinkish.common.time import Duration, Instant, Time
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.types import Row, RowKind
from flinkish.common.watermark_strategy import AssignerWithPeriodicWatermarksWrapper, WatermarkStrategy

#: Names that PyFlink's ``pyflink.common`` re-exports from its formats, and their modules here. They are imported only
#: when a program asks for them, since the formats import this package.
_OF_FORMATS = {
    "AvroRowDeserializationSchema": "avro",
    "AvroRowSerializationSchema": "avro",
    "CsvRowDeserializationSchema": "csv",
    "CsvRowSerializationSchema": "csv",
    "JsonRowDeserializationSchema": "json",
    "JsonRowSerializationSchema": "json",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_FORMATS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"flinkish.formats.{_OF_FORMATS[name]}"), name)


__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]
