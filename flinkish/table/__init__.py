"""flinkish.table: the column types that formats of the DataStream API take from ``pyflink.table``. There is no Table
API."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.common.types import Row
from flinkish.table.types import DataTypes

__all__ = ["DataTypes", "Row"]

supply_names(__name__, "common.types")
