"""What a run that failed has written of the state goes before its epoch runs again: Spark would keep it. Those files of
a query go that no start needs any more."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext

from flinkish.errors import RetryableError
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.task.task import RETAINED_EPOCHS
from flinkish.spark import state_files
from flinkish.spark.place import executor_id
from flinkish.spark.state_files import delete_state_from, delete_state_of_failed_try, old_files

KEPT = ("1.delta", ".1.delta.crc", "2.delta", "2.snapshot", "2.changelog", "2_6f-1a.zip", "SSTs")
DELETED = ("3.delta", ".3.delta.crc", "3.snapshot", "3.changelog", "3_6f-1a.zip", "4.delta", "..3.delta.a.TID5.tmp.crc")


def partitions(query: Path, levels: str, numbers: str, *names: str) -> list[Path]:
    """Make the directories of the partitions of levels, with these files."""
    folders = [query / "state" / level / number for level in levels for number in numbers]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).touch()
    return folders


def test_only_versions_of_the_epoch_that_runs_again_are_deleted_in_all_partitions_of_all_levels(tmp_path: Path) -> None:
    folders = partitions(tmp_path, "01", "01", *KEPT, *DELETED)
    metadata = tmp_path / "state/0/_metadata"
    metadata.mkdir()
    for name in DELETED:
        (metadata / name).touch()
    delete_state_from(str(tmp_path), 3)
    for folder in folders:
        assert sorted(path.name for path in folder.iterdir()) == sorted(KEPT)
    assert len(list(metadata.iterdir())) == len(DELETED)
    delete_state_from(str(tmp_path / "a query without state"), 1)


def test_partitions_are_looked_at_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = partitions(tmp_path, "01", "0123", "3.delta")
    at_once, unchanged = threading.Barrier(len(folders)), state_files.storage_of
    new = {str(folder) for folder in folders}

    def storage_at(path: str) -> Any:
        if path in new:
            new.discard(path)
            # broken, if they come one after the other
            at_once.wait(60)
        return unchanged(path)

    monkeypatch.setattr(state_files, "storage_of", storage_at)
    delete_state_from(str(tmp_path), 3)
    assert not any(path.name == "3.delta" for folder in folders for path in folder.iterdir())


def test_partition_that_cannot_be_cleaned_up_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions(tmp_path, "0", "012")
    unchanged = state_files.storage_of

    def storage_at(path: str) -> Any:
        if path.endswith("/state/0/1"):
            raise OSError("on purpose")
        return unchanged(path)

    monkeypatch.setattr(state_files, "storage_of", storage_at)
    with pytest.raises(OSError, match="on purpose"):
        delete_state_from(str(tmp_path), 3)


@dataclass(frozen=True)
class Try:
    """A try of a Spark task, and the state that it finds after its batch, 7, which is epoch 9."""

    attempt: int
    executor: str
    #: files of its partition, and whether the epoch is prepared
    there: tuple[str, ...]
    prepared: bool = False


WROTE = ("7.delta", "8.delta", ".8.delta.crc")


@pytest.mark.parametrize(
    ("one", "left"),
    [
        # nothing is there, however often Spark has tried
        (Try(0, "1", ("7.delta",)), ["7.delta"]),
        (Try(2, "1", ("7.delta",)), ["7.delta"]),
        # the try before has failed
        (Try(1, "1", WROTE), ["7.delta"]),
        # a local master, where nothing runs beside
        (Try(0, "driver", WROTE), ["7.delta"]),
        # whose state it is, a first try cannot know: the stage may run again, or a later try may have ended before
        (Try(0, "1", WROTE), None),
        # the epoch is prepared, or others have followed
        (Try(0, "1", WROTE, prepared=True), None),
        (Try(1, "1", WROTE, prepared=True), None),
        (Try(0, "driver", WROTE, prepared=True), None),
        (Try(1, "1", (*WROTE, "9.delta")), None),
        (Try(1, "1", (*WROTE, "9.snapshot"), prepared=True), None),
    ],
    ids=str,
)
def test_only_a_try_that_follows_a_failed_one_deletes_state_and_none_of_a_prepared_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: Try, left: list[str] | None
) -> None:
    (folder,), files = partitions(tmp_path, "1", "3", *one.there), EpochFiles(str(tmp_path / "prepared"), "")
    if one.prepared:
        (tmp_path / "prepared").mkdir()
        (tmp_path / "prepared/9.json").touch()
    # the constructor makes the one context of the process, which must not outlive the test
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext()
    context._attemptNumber, context._partitionId = one.attempt, 3
    monkeypatch.setenv("SPARK_EXECUTOR_ID", one.executor)
    executor_id.cache_clear()
    refused = pytest.raises(RetryableError, match="epoch 9 is there already") if left is None else nullcontext()
    try:
        with refused:
            delete_state_of_failed_try(files, 1, 7, 9)
    finally:
        executor_id.cache_clear()
    assert sorted(path.name for path in folder.iterdir()) == sorted(one.there if left is None else left)


BATCH = 100
#: The last batch before those whose start and end a query can go back to.
OLD = BATCH - RETAINED_EPOCHS - 1


def is_old(name: str, *beside: str) -> bool:
    """Whether a file is old beside others, when the batch is committed as an epoch of a number that is 7 higher."""
    return name in old_files([name, *beside], BATCH, BATCH + 7)


@pytest.mark.parametrize("folder", ["state/0/1", "state/1/0/left-keys"])
def test_the_state_keeps_a_snapshot_and_what_has_changed_since(folder: str) -> None:
    snapshot = f"{folder}/{OLD}.snapshot"
    assert is_old(f"{folder}/{OLD}.delta", snapshot)
    assert is_old(f"{folder}/{OLD - 1}.snapshot", snapshot)
    assert not is_old(snapshot)
    assert not is_old(f"{folder}/{OLD + 1}.delta", snapshot)


def test_changes_of_state_stay_without_a_snapshot_of_the_oldest_version_that_is_needed() -> None:
    deltas = [f"state/0/0/{version}.delta" for version in range(1, BATCH + 2)]
    snapshots = ["state/0/1/50.snapshot", f"state/0/0/{BATCH}.snapshot"]
    assert old_files([*deltas, *snapshots], BATCH, BATCH) == []


@pytest.mark.parametrize(("folder", "ending"), [("offsets", ""), ("commits", ""), ("state/0/1", ".delta")])
def test_the_log_keeps_the_batches_that_can_be_gone_back_to_and_what_a_killed_process_was_writing_of_them(
    folder: str, ending: str
) -> None:
    temporary = f"{ending}.554ab211-fb8f-4d29-bb28-6dae387f8090.tmp"
    assert is_old(f"{folder}/.{OLD}{temporary}") and not is_old(f"{folder}/.{OLD + 1}{temporary}")
    if not ending:
        assert is_old(f"{folder}/{OLD}")
        assert not is_old(f"{folder}/{OLD + 1}") and not is_old(f"{folder}/{BATCH + 1}")


def test_prepared_epochs_stay_that_may_be_delivered_again_and_their_files_go_after_them() -> None:
    token = "0" * 32
    names = [f"prepared/{epoch}{rest}" for epoch in (104, 105, 106, 107) for rest in (f"/{token}", ".json")]
    assert old_files(names, BATCH, BATCH + 7) == [
        "prepared/104.json", "prepared/105.json", f"prepared/104/{token}", f"prepared/105/{token}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["metadata", "sources/0/0", "state/0/_metadata/metadata", "state/0/0/_metadata/schema", "epoch-times", "commits/a"],
)
def test_files_without_a_number_of_a_batch_stay(name: str) -> None:
    assert not is_old(name)


@given(st.sets(st.integers(1, 60)), st.integers(0, 60))
def test_every_version_that_can_be_gone_back_to_can_still_be_made(snapshots: set[int], batch: int) -> None:
    versions = range(1, batch + 2)
    names = {f"state/0/0/{version}.delta" for version in versions}
    names |= {f"state/0/0/{version}.snapshot" for version in snapshots if version in versions}
    left = names - set(old_files(names, batch, batch))
    for version in range(max(1, batch + 1 - RETAINED_EPOCHS), batch + 2):
        made_from = max((one for one in snapshots if one <= version and f"state/0/0/{one}.snapshot" in left), default=0)
        assert all(f"state/0/0/{one}.delta" in left for one in range(made_from + 1, version + 1))
