"""Orders and their payments, from generators that need no server.

Rule: the n-th order and the n-th payment depend on n alone, so that a test can compute the results that a job must
give, and an epoch that runs again reads the same records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.common import Duration, Row, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream.connectors.datagen import DataGeneratorSource

#: The type of orders and of payments, which have the same fields. ``ts`` is the event time in ms since
#: 1970-01-01T00:00:00Z.
ORDER = PAYMENT = Types.ROW_NAMED(["order_id", "amount", "ts"], [Types.STRING(), Types.DOUBLE(), Types.LONG()])
ORDER_ID, AMOUNT, TS = range(3)

FIRST_TS_MS = 1_700_000_040_000
STEP_MS = 500
#: The n-th payment is for the n-th order and comes at most this much later, ...
PAID_AFTER_MS = 60_000
#: ... but every 13th payment is later by LATE_BY_MS, every 17th pays half the amount, and every 101st pays no order.
LATE_EVERY, LATE_BY_MS, HALF_EVERY, WITHOUT_ORDER_EVERY = 13, 660_000, 17, 101

#: Records per epoch of each generator. The number is fixed, because a job that is started again counts in epochs.
RECORDS_PER_EPOCH = 25_000

_GOLDEN, _SILVER = 2_654_435_769, 1_779_033_703
_32_BITS = 2**32


def orders_of(indices: Iterable[int]) -> list[Row]:
    """The orders with these numbers, which count from 0.

    >>> orders_of([7])
    [Row(order_id='o7', amount=326.24, ts=1700000043500)]
    """
    order = Row(*ORDER.get_field_names())
    return [order(f"o{index}", _amount(index), FIRST_TS_MS + index * STEP_MS) for index in indices]


def payments_of(indices: Iterable[int]) -> list[Row]:
    """The payments with these numbers, which count from 0.

    >>> payments_of([7])
    [Row(order_id='o7', amount=326.24, ts=1700000097469)]
    """
    payment = Row(*PAYMENT.get_field_names())
    return [payment(*_payment(index)) for index in indices]


def _amount(index: int) -> float:
    return round(index * _GOLDEN % _32_BITS / _32_BITS * 1_000, 2)


def _payment(index: int) -> tuple[Any, ...]:
    order_id = f"x{index}" if index % WITHOUT_ORDER_EVERY == 0 else f"o{index}"
    amount = round(_amount(index) / 2, 2) if index % HALF_EVERY == 0 else _amount(index)
    after_ms = int(index * _SILVER % _32_BITS / _32_BITS * PAID_AFTER_MS)
    if index % LATE_EVERY == 0:
        after_ms += LATE_BY_MS
    return order_id, amount, FIRST_TS_MS + index * STEP_MS + after_ms


def generated_orders(orders: int, splits: int = 1) -> DataGeneratorSource:
    """A bounded source of the orders with the numbers below ``orders``."""
    return DataGeneratorSource(
        orders_of, orders, ORDER, records_per_epoch=RECORDS_PER_EPOCH, splits=splits, of_list=True
    )


def generated_payments(orders: int, splits: int = 1) -> DataGeneratorSource:
    """A bounded source of the payments with the numbers below ``orders``."""
    return DataGeneratorSource(
        payments_of, orders, PAYMENT, records_per_epoch=RECORDS_PER_EPOCH, splits=splits, of_list=True
    )


class TimeOf(TimestampAssigner):
    """Assigns each order or payment its event time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The field ``ts`` of the order or payment, in ms."""
        return int(value[TS])


def order_watermarks() -> WatermarkStrategy:
    """A strategy for orders, whose timestamps ascend."""
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf())


def payment_watermarks() -> WatermarkStrategy:
    """A strategy for payments. They come in the order of their orders, so a late payment comes between payments that
    were made long before it, and watermarks stay behind by the longest delay."""
    bound = Duration.of_millis(PAID_AFTER_MS + LATE_BY_MS)
    return WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(TimeOf())
