"""Values of many kinds that a former version has stored, as the tests of reading expect them."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import uuid
import zoneinfo
from typing import Any

from flinkish.common.time import Duration
from flinkish.common.types import Row, RowKind
from flinkish.core.window.window import TimeWindow
from flinkish.runtime.exchange.keys import ListKey
from tests.unit.runtime.stored.test_stored_pickle import Colour, Money, Point, Rights, Words

#: The classes by the names under which the values were stored.
FORMER_NAMES = {
    f"tests.unit.state.test_stored_pickle.{cls.__name__}": cls for cls in (Colour, Money, Point, Rights, Words)
}


def values() -> list[Any]:
    """The values, in the order in which they were stored."""
    return [
        Money(3),
        Point(1, 2),
        Colour.RED,
        Rights.READ,
        Words("ab"),
        Row.of_kind(RowKind.DELETE, 1),
        uuid.UUID(int=7),
        collections.defaultdict(list, a=[1]),
        collections.ChainMap({"a": 1}),
        array.array("d", [1.5]),
        TimeWindow(0, 5),
        ListKey([1]),
        Duration.of_millis(5),
        dt.datetime(2024, 1, 2, tzinfo=zoneinfo.ZoneInfo("UTC")),
        decimal.Decimal("1.50"),
        collections.deque([1], 3),
        ValueError("x"),
        complex(1, 2),
    ]
