"""PyFlink's ``DeliveryGuarantee`` (``flinkish.datastream.connectors.base``)."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(Enum):
    """The delivery guarantee that a program asks of a sink."""

    # PyFlink's values, including the tuples
    EXACTLY_ONCE = (0,)
    AT_LEAST_ONCE = (1,)
    NONE = 2
