"""Re-exports TimeDomain (event time or processing time) at PyFlink's module path."""

from __future__ import annotations

from flinkish.core.time import TimeDomain

__all__ = ["TimeDomain"]
