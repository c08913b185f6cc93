"""Re-exports TimerService at PyFlink's module path."""

from __future__ import annotations

from flinkish.core.time import TimerService

__all__ = ["TimerService"]
