"""Re-exports OrcBulkWriters at PyFlink's module path."""

from __future__ import annotations

from flinkish.formats.orc import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
