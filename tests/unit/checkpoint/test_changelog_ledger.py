"""From which epoch on the changelog has no gap."""

from __future__ import annotations

from pathlib import Path

from flinkish.checkpoint.writer import ChangelogLedger
from flinkish.jobdir.directory import JobDirectory


def write(ledger: ChangelogLedger, *epochs: int, location: str = "/job/spark") -> None:
    for epoch in epochs:
        path = Path(ledger.path) / f"epoch={epoch}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "part-0.parquet").touch()
        ledger.epoch_written(epoch, location)


def test_it_covers_what_follows_the_first_epoch_of_a_run(tmp_path: Path) -> None:
    ledger = ChangelogLedger(JobDirectory(str(tmp_path)))
    assert not ledger.covers(0)
    write(ledger, 4, 5, 6, 10)
    assert not ledger.covers(4)
    assert ledger.covers(5)
    assert ledger.epochs(5, 9) == [5, 6]


def test_another_run_of_the_same_query_goes_on_with_it(tmp_path: Path) -> None:
    write(ChangelogLedger(JobDirectory(str(tmp_path))), 0, 1)
    ledger = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(ledger, 2)
    assert ledger.covers(1) and ledger.epochs(1, 2) == [1, 2]


def test_another_query_begins_anew(tmp_path: Path) -> None:
    ledger = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(ledger, 0, 1)
    write(ledger, 2, 3, location="/job/spark-fallback")
    assert not ledger.covers(2) and ledger.covers(3)
    assert ledger.epochs(0, 9) == [3]


def test_another_query_is_not_refused_for_what_the_one_before_had(tmp_path: Path) -> None:
    ledger = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(ledger, 0)
    ledger.refuse("keys that are floats")
    write(ledger, 1, 2, location="/job/spark-fallback")
    assert ledger.refused is None
    again = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(again, 3, location="/job/spark-fallback")
    assert again.refused is None


def test_a_run_that_keeps_none_ends_it(tmp_path: Path) -> None:
    write(ChangelogLedger(JobDirectory(str(tmp_path))), 0, 1)
    ChangelogLedger(JobDirectory(str(tmp_path))).drop()
    ledger = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(ledger, 5)
    assert not ledger.covers(2) and ledger.covers(6)


def test_what_is_part_of_a_checkpoint_is_deleted(tmp_path: Path) -> None:
    ledger = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(ledger, *range(5))
    ledger.forget(3)
    assert ledger.epochs(0, 9) == [4]


def test_that_it_is_of_no_use_is_remembered(tmp_path: Path) -> None:
    ledger = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(ledger, 0)
    ledger.refuse("keys that are floats")
    again = ChangelogLedger(JobDirectory(str(tmp_path)))
    write(again, 1)
    assert again.refused == "keys that are floats"
