"""The first and the last moment, in ms, at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names

__all__ = ["MAX_LONG_VALUE", "MIN_LONG_VALUE"]

supply_names(__name__)

MAX_LONG_VALUE = 2**63 - 1
MIN_LONG_VALUE = -(2**63)
