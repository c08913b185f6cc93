"""Re-exports OrcBulkWriters at PyFlink's module path."""

from __future__ import annotations

from flinkish.formats.columnar import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
