"""A driver that is paused while it cleans up, and goes on when a newer one owns the job, deletes nothing of that one,
and does not replace what that one has counted.

Each deletion asks the fence when it is settled what goes, and what goes was listed before. The tests let the newer
driver come at one of these two moments.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.checkpoint.claim import subsume_claimed
from flinkish.checkpoint.maintenance import Maintenance
from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest, TableVersion
from flinkish.checkpoint.table import CheckpointTable, Written, set_aside_if_damaged
from flinkish.checkpoint.writer import ChangelogLedger
from flinkish.common import Configuration
from flinkish.errors import CheckpointError, FencedError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import checkpoint_taker
from flinkish.jobmanager.job.settings import checkpoint_settings
from tests.support.fences import FallingFence
from tests.support.job_files import put


def nothing() -> None:
    """A check that passes."""


def is_refused(*calls: Callable[[], object]) -> None:
    """Each call is that of a driver that is not the owner any more."""
    for call in calls:
        with pytest.raises(FencedError):
            call()


def write_checkpoints(directory: CheckpointDirectory, *numbers: int) -> None:
    for number in numbers:
        directory.write(number, Manifest("ab", "shop", number, 0, state=TableVersion("../state", number)))


@pytest.fixture
def checkpoints(tmp_path: Path) -> CheckpointDirectory:
    """Three that are whole, and one that never became so."""
    directory = CheckpointDirectory(str(tmp_path / "checkpoints"))
    write_checkpoints(directory, 1, 3, 4)
    Path(directory.checkpoint(2)).mkdir()
    return directory


def numbers(directory: CheckpointDirectory) -> list[int]:
    return sorted(int(path.name.removeprefix("chk-")) for path in Path(directory.path).glob("chk-*"))


def test_old_checkpoints_are_deleted_by_the_owner_only(checkpoints: CheckpointDirectory) -> None:
    is_refused(lambda: checkpoints.drop_but(1, FallingFence().check))
    assert numbers(checkpoints) == [1, 2, 3, 4]
    assert checkpoints.drop_but(1, nothing) == [4]
    assert numbers(checkpoints) == [4]


@pytest.mark.parametrize(
    ("passes", "refused", "whole"),
    [(0, FencedError, [1, 3, 4]), (1, FencedError, [1, 3, 4]), (2, None, [1, 3, 4, 5])],
    ids=["before it is written", "while it is written", "afterwards"],
)
def test_a_checkpoint_is_completed_by_the_owner_only(
    checkpoints: CheckpointDirectory, passes: int, refused: type[Exception] | None, whole: list[int]
) -> None:
    manifest = Manifest("ab", "shop", 5, 0, state=TableVersion("../state", 5))
    with pytest.raises(refused) if refused is not None else nullcontext():
        checkpoints.complete(5, manifest, FallingFence(passes).check)
    assert checkpoints.completed() == whole


def test_a_checkpoint_that_is_complete_does_not_expire(checkpoints: CheckpointDirectory) -> None:
    answers = iter([None, CheckpointError("it took longer than 10 minutes")])

    def check() -> None:
        if (error := next(answers)) is not None:
            raise error

    checkpoints.complete(5, Manifest("ab", "shop", 5, 0, state=TableVersion("../state", 5)), check)
    assert checkpoints.completed() == [1, 3, 4, 5]


def test_checkpoints_that_came_meanwhile_are_not_deleted(checkpoints: CheckpointDirectory) -> None:
    def newer_driver() -> None:
        write_checkpoints(checkpoints, 5, 6)

    assert checkpoints.drop_but(1, newer_driver) == [4]
    assert numbers(checkpoints) == [4, 5, 6]


def test_all_checkpoints_are_deleted_by_the_owner_only(checkpoints: CheckpointDirectory) -> None:
    table = Path(checkpoints.table)
    table.mkdir()
    is_refused(lambda: checkpoints.delete(FallingFence().check))
    assert numbers(checkpoints) == [1, 2, 3, 4] and table.is_dir()
    checkpoints.delete(nothing)
    assert numbers(checkpoints) == []
    assert [path.name for path in Path(checkpoints.path).iterdir()] == []


class Table(CheckpointTable):
    """Its log is written by the test; something may happen as soon as its versions were read."""

    def __init__(self, path: Path, check: Callable[[], None] = nothing) -> None:
        super().__init__(None, str(path), check)
        self.then: Callable[[], None] = nothing

    def versions(self) -> list[int]:
        versions = super().versions()
        self.then()
        return versions

    def commit(self, version: int, *files: str, data_change: bool = True, **operation: Any) -> None:
        """A version that overwrites the table by these files."""
        log = Path(self.path) / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        info = {"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}, "timestamp": 0}
        actions: list[Any] = [{"commitInfo": info}]
        for name in files:
            (Path(self.path) / name).touch()
            (Path(self.path) / f".{name}.crc").touch()
            actions.append({"add": {"path": name, "dataChange": data_change}})
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))

    def files(self) -> set[str]:
        return {path.name for path in Path(self.path).glob("*.parquet")}


def three_versions(path: Path, check: Callable[[], None] = nothing) -> Table:
    table = Table(path, check)
    for version in range(3):
        table.commit(version, f"{version}.parquet")
    return table


def test_files_that_were_written_after_the_log_was_read_are_not_deleted(tmp_path: Path) -> None:
    """The versions of before know nothing of them: they look as if nobody needed them."""
    table = three_versions(tmp_path / "state")
    table.then = lambda: table.commit(3, "3.parquet")
    assert table.delete_unneeded(oldest=2) == 2
    assert table.files() == {"2.parquet", "3.parquet"}
    assert {path.name for path in Path(table.path).glob(".*.crc")} == {".2.parquet.crc", ".3.parquet.crc"}


def test_files_are_deleted_by_the_owner_only(tmp_path: Path) -> None:
    table = three_versions(tmp_path / "state", FallingFence().check)
    (tmp_path / "state" / "_delta_log" / f"{1:020d}.checkpoint.parquet").touch()
    (tmp_path / "state" / "vector.bin").touch()
    log = sorted(path.name for path in (tmp_path / "state" / "_delta_log").iterdir())
    is_refused(
        lambda: table.delete_unneeded(oldest=2),
        lambda: table.log.trim(2, table.check),
        lambda: table.vacuum(retain_ms=1),
    )
    assert table.files() == {"0.parquet", "1.parquet", "2.parquet"}
    assert sorted(path.name for path in (tmp_path / "state" / "_delta_log").iterdir()) == log


def test_a_table_that_went_on_without_a_checkpoint_is_no_base_for_changes(tmp_path: Path) -> None:
    """What a paused driver may still have committed is not what the last checkpoint holds."""
    table = three_versions(tmp_path / "state")
    assert not table.changed_since(2)
    table.commit(3, "compacted.parquet", data_change=False)
    table.commit(4)
    assert not table.changed_since(2)
    table.commit(5, "of-an-older-driver.parquet")
    assert table.changed_since(2) and not table.changed_since(5)


def test_what_clean_ups_have_counted_is_written_by_the_owner_only(tmp_path: Path) -> None:
    """A driver that was paused while it wrote the table goes on with counting what it has written."""
    directory = CheckpointDirectory(str(tmp_path / "checkpoints"))
    three_versions(Path(directory.table))
    Maintenance(CheckpointTable(None, directory.table, nothing), directory).overwritten(Written(1, 10, 100))
    counted = (Path(directory.path) / "maintenance.json").read_bytes()
    paused = Maintenance(CheckpointTable(None, directory.table, FallingFence().check), directory)
    is_refused(
        lambda: paused.overwritten(Written(2, 20, 200)),
        lambda: paused.appended(Written(2, 20, 200), first=False),
        lambda: paused.merged(Written(2, 20, 200)),
    )
    assert (Path(directory.path) / "maintenance.json").read_bytes() == counted


def test_what_somebody_else_has_written_meanwhile_is_noticed(tmp_path: Path) -> None:
    """A paused driver has looked who owns the job before it was paused, and writes when it goes on."""
    table = three_versions(tmp_path / "changes")
    table.commit(3, "mine.parquet")
    assert table.is_only_change(Written(3, 1), version=2)
    assert not table.is_only_change(Written(3, 1), version=1)
    table.commit(4, "of-an-older-driver.parquet")
    assert not table.is_only_change(Written(4, 1), version=2)
    table.commit(5)
    assert table.is_only_change(Written(5, 0), version=4), "no row was written"


def test_a_row_without_a_value_is_found_by_the_statistics_and_assumed_without(tmp_path: Path) -> None:
    table = three_versions(tmp_path / "changes")
    assert table.has_null(2, "uid"), "there are no statistics"
    for version, nulls in ((3, 0), (4, 1)):
        stats = json.dumps({"numRecords": 5, "nullCount": {"uid": nulls}})
        log = tmp_path / "changes" / "_delta_log" / f"{version:020d}.json"
        log.write_text(json.dumps({"add": {"path": "a", "dataChange": True, "stats": stats}}))
    assert not table.has_null(3, "uid") and table.has_null(4, "uid")


def test_a_damaged_table_is_set_aside_by_the_owner_only(tmp_path: Path) -> None:
    table = three_versions(tmp_path / "state")
    (tmp_path / "state" / "_delta_log" / f"{1:020d}.json").write_text("")
    is_refused(lambda: set_aside_if_damaged(table.path, 1, "shop", FallingFence().check))
    assert table.files() == {"0.parquet", "1.parquet", "2.parquet"}


def test_the_changelog_is_deleted_by_the_owner_only(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path))
    ledger = ChangelogLedger(directory)
    for epoch in (0, 1, 2):
        part = Path(ledger.path) / f"epoch={epoch}" / "part-0.parquet"
        part.parent.mkdir(parents=True)
        part.touch()
        ledger.epoch_written(epoch, "/job/spark")
    assert ledger.epochs(0, 9) == [1, 2]
    directory.fence = FallingFence()
    is_refused(lambda: ledger.forget(1), ledger.drop)
    assert ledger.epochs(0, 9) == [1, 2]


def test_a_claimed_savepoint_is_deleted_by_the_owner_only(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path / "job"))
    claimed = tmp_path / "savepoint-1"
    write_checkpoints(CheckpointDirectory(str(claimed)), 1)
    put(directory, "restored.json", {"savepoint": str(claimed), "path": str(claimed / "chk-1"), "claim_mode": "CLAIM"})
    directory.fence = FallingFence()
    is_refused(lambda: subsume_claimed(directory, completed=1, retained=1))
    assert (claimed / "chk-1" / "manifest.json").exists()


def test_a_driver_that_lost_the_job_takes_no_number_for_a_checkpoint(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path / "job"))
    directory.fence = FallingFence()
    run: Any = SimpleNamespace(name="shop", directory=directory, checkpoint_ended=lambda description: None)
    checkpoints = CheckpointDirectory(str(tmp_path / "checkpoints"))
    settings = checkpoint_settings(Configuration().set_string("execution.checkpointing.interval", "1 s"))
    taker = checkpoint_taker.CheckpointTaker(run, settings, checkpoints)
    attempt: Any = None
    taker.take(attempt, 7)
    # nor does it fail its attempt for that
    assert taker.describe() == ()
    assert not (tmp_path / "checkpoints").exists()
