"""Re-exports OutputTag, which identifies a side output, at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.core.functions import OutputTag

__all__ = ["OutputTag"]

supply_names(__name__, "common", "common.typeinfo")
