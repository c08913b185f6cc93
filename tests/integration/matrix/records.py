"""The 77 records that every source of the matrix gives, and the golden result of the program."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.exactness import Output

#: Seven files (partitions, splits, ...) of eleven records.
PARTS, RECORDS_PER_PART = 7, 11
RECORDS = PARTS * RECORDS_PER_PART

#: (part, number within the part)
Record = tuple[int, int]


def by_part() -> list[Record]:
    """All records, one part after the other, as files are read."""
    return [(part, number) for part in range(PARTS) for number in range(RECORDS_PER_PART)]


def in_turns() -> list[Record]:
    """All records, a record of each part in turn, as parts are read that are read side by side."""
    return sorted(by_part(), key=lambda record: record[::-1])


def rebalanced(record: Record) -> Output:
    """What the branch behind ``rebalance()`` makes of a record. Its order in a part is not promised."""
    part, number = record
    return Output(f"rebalanced/{part}", f"rebalanced/{part}/{number}", number + 1, "1", f"{part}-{number}")


def key_of(record: Record) -> str:
    """The key in the other branch: all records of a key are of one part, so that their order is promised."""
    part, number = record
    return f"keyed/{part}/{number % 2}"


def counted(record: Record, count: int) -> Output:
    """What the keyed branch makes of a record that is the ``count``-th of its key."""
    part, number = record
    return Output(key_of(record), f"keyed/{part}/{number}", count, "1", f"{part}-{number}")


def golden() -> list[Output]:
    """What must be in the sink."""
    keyed = [counted(record, record[1] // 2 + 1) for record in by_part()]
    return [*map(rebalanced, by_part()), *keyed]


def in_promised_order(outputs: Iterable[Output]) -> list[Output]:
    """Outputs whose order is not promised are put in order; the others stay as they are."""
    return sorted(outputs, key=lambda output: output.number if output.lane.startswith("rebalanced/") else 0)
