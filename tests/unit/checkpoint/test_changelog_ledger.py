"""From which epoch on the changelog has no gap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flinkish.checkpoint.writer import ChangelogLedger
from flinkish.jobdir.directory import JobDirectory


@pytest.fixture
def open_ledger(tmp_path: Path) -> Callable[[], ChangelogLedger]:
    """Opens the ledger of the job as each of its runs does."""
    return lambda: ChangelogLedger(JobDirectory(str(tmp_path)))


def write(ledger: ChangelogLedger, *epochs: int, location: str = "/job/spark") -> None:
    for epoch in epochs:
        path = Path(ledger.path) / f"epoch={epoch}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "part-0.parquet").touch()
        ledger.epoch_written(epoch, location)


def test_it_covers_what_follows_the_first_epoch_of_a_run(open_ledger: Callable[[], ChangelogLedger]) -> None:
    ledger = open_ledger()
    assert not ledger.covers(0)
    write(ledger, 4, 5, 6, 10)
    assert not ledger.covers(4)
    assert ledger.covers(5)
    assert ledger.epochs(5, 9) == [5, 6]
    ledger.forget(5)
    assert ledger.epochs(0, 19) == [6, 10], "what is part of a checkpoint is deleted"


def test_another_run_of_the_same_query_goes_on_with_it(open_ledger: Callable[[], ChangelogLedger]) -> None:
    write(open_ledger(), 0, 1)
    ledger = open_ledger()
    write(ledger, 2)
    assert ledger.covers(1) and ledger.epochs(1, 2) == [1, 2]


def test_another_query_begins_anew(open_ledger: Callable[[], ChangelogLedger]) -> None:
    ledger = open_ledger()
    write(ledger, 0, 1)
    write(ledger, 2, 3, location="/job/spark-fallback")
    assert not ledger.covers(2) and ledger.covers(3)
    assert ledger.epochs(0, 9) == [3]


def test_that_it_is_of_no_use_is_remembered_but_not_of_another_query(
    open_ledger: Callable[[], ChangelogLedger],
) -> None:
    ledger = open_ledger()
    write(ledger, 0)
    ledger.refuse("keys that are floats")
    again = open_ledger()
    write(again, 1)
    assert again.refused == "keys that are floats"
    write(ledger, 1, 2, location="/job/spark-fallback")
    again = open_ledger()
    write(again, 3, location="/job/spark-fallback")
    assert ledger.refused is again.refused is None


def test_a_run_that_keeps_none_ends_it(open_ledger: Callable[[], ChangelogLedger]) -> None:
    write(open_ledger(), 0, 1)
    open_ledger().drop()
    ledger = open_ledger()
    write(ledger, 5)
    assert not ledger.covers(2) and ledger.covers(6)
