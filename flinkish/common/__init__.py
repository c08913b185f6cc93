"""flinkish.common: PyFlink's ``pyflink.common`` in plain Python; of flinkish it imports only ``flinkish.errors``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions
from flinkish.common.configuration import Configuration
from flinkish.common.time import Duration, Instant, Time
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.types import Row, RowKind
from flinkish.common.watermark_strategy import (
    AssignerWithPeriodicWatermarksWrapper,
    TimestampAssigner,
    WatermarkStrategy,
)

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "Duration",
    "Instant",
    "Row",
    "RowKind",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "Types",
    "WatermarkStrategy",
]
