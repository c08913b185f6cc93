"""What a run that failed has written of the state goes before its epoch runs again: Spark would keep it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from flinkish.spark import state_files
from flinkish.spark.state_files import delete_state_from

KEPT = ("1.delta", ".1.delta.crc", "2.delta", "2.snapshot", "2.changelog", "2_6f-1a.zip", "SSTs")
DELETED = ("3.delta", ".3.delta.crc", "3.snapshot", "3.changelog", "3_6f-1a.zip", "4.delta", "..3.delta.a.TID5.tmp.crc")


def test_only_versions_of_the_epoch_that_runs_again_are_deleted_in_all_partitions_of_all_levels(tmp_path: Path) -> None:
    folders = [tmp_path / "state" / level / partition for level in "01" for partition in "01"]
    for folder in (*folders, tmp_path / "state/0/_metadata"):
        folder.mkdir(parents=True)
        for name in (*KEPT, *DELETED):
            (folder / name).touch()
    delete_state_from(str(tmp_path), 3)
    for folder in folders:
        assert sorted(path.name for path in folder.iterdir()) == sorted(KEPT)
    assert len(list((tmp_path / "state/0/_metadata").iterdir())) == len(KEPT) + len(DELETED)


def test_partitions_are_looked_at_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "state" / level / partition for level in "01" for partition in "0123"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "3.delta").touch()
    at_once, unchanged = threading.Barrier(len(folders)), state_files.place
    new = {str(folder) for folder in folders}

    def place_of(path: str) -> Any:
        if path in new:
            new.discard(path)
            # broken, if they come one after the other
            at_once.wait(60)
        return unchanged(path)

    monkeypatch.setattr(state_files, "place", place_of)
    delete_state_from(str(tmp_path), 3)
    assert not any(path.name == "3.delta" for folder in folders for path in folder.iterdir())


def test_partition_that_cannot_be_cleaned_up_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in "012":
        (tmp_path / "state/0" / partition).mkdir(parents=True)
    unchanged = state_files.place

    def place_of(path: str) -> Any:
        if path.endswith("/state/0/1"):
            raise OSError("on purpose")
        return unchanged(path)

    monkeypatch.setattr(state_files, "place", place_of)
    with pytest.raises(OSError, match="on purpose"):
        delete_state_from(str(tmp_path), 3)


def test_a_query_without_state_has_nothing_to_delete(tmp_path: Path) -> None:
    delete_state_from(str(tmp_path / "spark"), 1)
