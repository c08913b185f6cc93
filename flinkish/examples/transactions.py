"""Transactions of accounts, and rules about them that change while the job runs, from generators that need no server.

Rule: the n-th transaction and the n-th change of a rule depend on n alone, so that a test can compute the results that
a job must give, and an epoch that runs again reads the same records.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from flinkish.common import Duration, Row, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream.connectors.datagen import DataGeneratorSource

#: The type of a transaction. ``ts`` is its event time in ms since 1970-01-01T00:00:00Z.
TRANSACTION = Types.ROW_NAMED(["account", "amount", "ts"], [Types.STRING(), Types.DOUBLE(), Types.LONG()])
ACCOUNT, AMOUNT, TS = range(3)

#: The type of a change of a rule. From the event time ``ts`` (ms) on, the rule gives an alert for each transaction that
#: brings the account above ``most`` within ``within_ms``, or no alerts while ``active`` is false.
RULE = Types.ROW_NAMED(
    ["rule", "within_ms", "most", "active", "ts"],
    [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.BOOLEAN(), Types.LONG()],
)
RULE_NAME, WITHIN_MS, MOST, ACTIVE, RULE_TS = range(5)

FIRST_TS_MS = 1_700_000_040_000
STEP_MS = 20
#: A transaction comes at most this much later than a transaction with a higher timestamp.
OUT_OF_ORDER_MS = 1_000
#: The number of transactions for each change of a rule.
TRANSACTIONS_PER_RULE = 2_500

#: Records per epoch of the generator of transactions. The number is fixed, because a job that is started again counts
#: in epochs.
RECORDS_PER_EPOCH = 25_000

_GOLDEN, _PLASTIC, _SILVER = 2_654_435_769, 3_242_174_889, 1_779_033_703
_32_BITS = 2**32


def transactions_of(indices: Iterable[int], accounts: int) -> list[Row]:
    """The transactions with these numbers, which count from 0. Accounts are drawn by Zipf's law.

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
    """The changes of rules with these numbers, which count from 0.

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
    """The number of changes of rules that come with so many transactions; at least two, one per rule."""
    return max(2, transactions // TRANSACTIONS_PER_RULE)


def generated_transactions(transactions: int, accounts: int, splits: int = 1) -> DataGeneratorSource:
    """A bounded source of the transactions with the numbers below ``transactions``."""
    return DataGeneratorSource(
        partial(transactions_of, accounts=accounts),
        transactions,
        TRANSACTION,
        records_per_epoch=RECORDS_PER_EPOCH,
        splits=splits,
        of_list=True,
    )


def generated_rules(transactions: int) -> DataGeneratorSource:
    """A bounded source of the changes of rules that come with so many transactions. Its epochs advance in event time
    about as fast as those of the transactions."""
    per_epoch = max(1, RECORDS_PER_EPOCH // TRANSACTIONS_PER_RULE)
    return DataGeneratorSource(rules_of, number_of_rules(transactions), RULE, records_per_epoch=per_epoch, of_list=True)


class TimeOf(TimestampAssigner):
    """Assigns each Row the event time in ms that one of its fields holds.

    Args:
        field: the position of that field.
    """

    def __init__(self, field: int) -> None:
        self._field = field

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The value of the field, in ms."""
        return int(value[self._field])


def transaction_watermarks() -> WatermarkStrategy:
    """A strategy whose watermarks allow for the disorder of the generated transactions (`OUT_OF_ORDER_MS`)."""
    bound = Duration.of_millis(OUT_OF_ORDER_MS)
    return WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(TimeOf(TS))


def rule_watermarks() -> WatermarkStrategy:
    """A strategy for rules, whose timestamps ascend. If they come from a topic in which nothing happens for hours, add
    ``with_idleness``, because a silent stream of rules would hold back the watermark and so the alerts."""
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(RULE_TS))
