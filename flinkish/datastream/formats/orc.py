"""Re-exports OrcBulkWriters at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.formats.columnar import OrcBulkWriters

__all__ = ["OrcBulkWriters"]

supply_names(__name__, "common.serialization", "common", "datastream.utils")
