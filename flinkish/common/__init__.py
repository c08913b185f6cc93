"""flinkish.common: PyFlink's ``pyflink.common`` in plain Python; of flinkish it imports only ``flinkish.errors``."""

from __future__ import annotations

from flinkish.common.completable_future import CompletableFuture
from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.configuration import Configuration
from flinkish.common.execution_config import ExecutionConfig
from flinkish.common.input_dependency_constraint import InputDependencyConstraint
from flinkish.common.job_client import JobClient
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.common.no_effect import supply_names
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

# looked up when a program asks for them, since the formats import this package
supply_names(__name__, "formats.json", "formats.csv", "formats.avro", "common.execution_config")
