"""ParquetBulkWriters, at PyFlink's module path."""

from __future__ import annotations

from flinkish.formats.parquet import ParquetBulkWriters

__all__ = ["ParquetBulkWriters"]
