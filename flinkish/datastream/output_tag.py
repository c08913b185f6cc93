"""Re-exports OutputTag, which identifies a side output, at PyFlink's module path."""

from __future__ import annotations

from flinkish.core.output_tag import OutputTag

__all__ = ["OutputTag"]
