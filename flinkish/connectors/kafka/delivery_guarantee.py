"""PyFlink's ``DeliveryGuarantee`` (``flinkish.datastream.connectors.base``)."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(Enum):
    """What a sink is asked to promise."""

    # the values are PyFlink's, its odd tuples included
    EXACTLY_ONCE = (0,)
    AT_LEAST_ONCE = (1,)
    NONE = 2
