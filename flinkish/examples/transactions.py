"""Transactions of accounts, and rules about them that change while the job runs, from generators without any server.

Rule: the n-th transaction, and the n-th change of a rule, depends on n alone, so that a test can compute what a job
must give, and an epoch that runs again reads the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from flinkish.common import Duration, Row, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream.connectors.datagen import DataGeneratorSource

#: ``ts``: event time in ms since 1970-01-01T00:00:00Z.
TRANSACTION = Types.ROW_NAMED(["account", "amount", "ts"], [Types.STRING(), Types.DOUBLE(), Types.LONG()])
ACCOUNT, AMOUNT, TS = range(3)

#: A rule as it is from ``ts`` on: an alert for each transaction that brings the account above ``most`` within
#: ``within_ms``; ``active`` false: no alerts by it until it is changed again.
RULE = Types.ROW_NAMED(
    ["rule", "within_ms", "most", "active", "ts"],
    [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.BOOLEAN(), Types.LONG()],
)
RULE_NAME, WITHIN_MS, MOST, ACTIVE, RULE_TS = range(5)

FIRST_TS_MS = 1_700_000_040_000
STEP_MS = 20
#: A transaction comes at most this much later than one with a higher timestamp.
OUT_OF_ORDER_MS = 1_000
#: So many transactions for each change of a rule.
TRANSACTIONS_PER_RULE = 2_500

#: Of the generator of transactions. Fixed, because a job that goes on counts in epochs.
RECORDS_PER_EPOCH = 25_000

_GOLDEN, _PLASTIC, _SILVER = 2_654_435_769, 3_242_174_889, 1_779_033_703
_32_BITS = 2**32


def transactions_of(indices: Iterable[int], accounts: int) -> list[Row]:
    """The transactions of these numbers (from 0). Accounts are drawn by Zipf's law.

    >>> transactions_of([7], accounts=100)
    [Row(account='a3', amount=3.26, ts=1700000039241)]
    """
    transaction = Row(*TRANSACTION.get_field_names())
    return [transaction(*_transaction(index, accounts)) for index in indices]


def _transaction(index: int, accounts: int) -> tuple[Any, ...]:
    first = index * _GOLDEN % _32_BITS / _32_BITS
    second = index * _PLASTIC % _32_BITS / _32_BITS
    third = index * _SILVER % _32_BITS / _32_BITS
    ts = FIRST_TS_MS + index * STEP_MS - int(third * OUT_OF_ORDER_MS)
    return f"a{int((accounts + 1) ** first) - 1}", round(second**4 * 500, 2), ts


def rules_of(indices: Iterable[int]) -> list[Row]:
    """The changes of rules of these numbers (from 0).

    >>> rules_of([1])
    [Row(rule='ten minutes', within_ms=600000, most=4200.0, active=True, ts=1700000088000)]
    """
    rule = Row(*RULE.get_field_names())
    return [rule(*_rule(index)) for index in indices]


def _rule(index: int) -> tuple[Any, ...]:
    name, within_ms, most = (("minute", 60_000, 1_000.0), ("ten minutes", 600_000, 4_000.0))[index % 2]
    ts = FIRST_TS_MS - 2_000 + index * TRANSACTIONS_PER_RULE * STEP_MS
    return name, within_ms, most + index % 5 * 200.0, index % 7 != 6, ts


def number_of_rules(transactions: int) -> int:
    """So many changes of rules come with that many transactions; two at least, one per rule."""
    return max(2, transactions // TRANSACTIONS_PER_RULE)


def generated_transactions(transactions: int, accounts: int, splits: int = 1) -> DataGeneratorSource:
    """The transactions of the numbers below ``transactions``."""
    return DataGeneratorSource(
        partial(transactions_of, accounts=accounts),
        transactions,
        TRANSACTION,
        records_per_epoch=RECORDS_PER_EPOCH,
        splits=splits,
        of_list=True,
    )


def generated_rules(transactions: int) -> DataGeneratorSource:
    """The changes of rules that come with that many transactions, about when they do."""
    per_epoch = max(1, RECORDS_PER_EPOCH // TRANSACTIONS_PER_RULE)
    return DataGeneratorSource(rules_of, number_of_rules(transactions), RULE, records_per_epoch=per_epoch, of_list=True)


class TimeOf(TimestampAssigner):
    """The event time of a row."""

    def __init__(self, field: int) -> None:
        self._field = field

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The field's value."""
        return int(value[self._field])


def transaction_watermarks() -> WatermarkStrategy:
    """Watermarks that follow the disorder of generated transactions."""
    bound = Duration.of_millis(OUT_OF_ORDER_MS)
    return WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(TimeOf(TS))


def rule_watermarks() -> WatermarkStrategy:
    """Rules come in order. Where they come from a topic in which nothing happens for hours, add ``with_idleness``: a
    silent stream of rules would hold the alerts back."""
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(RULE_TS))
