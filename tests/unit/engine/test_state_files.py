"""What a run that failed has written of the state goes before its epoch runs again: Spark would keep it."""

from __future__ import annotations

from pathlib import Path

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


def test_a_query_without_state_has_nothing_to_delete(tmp_path: Path) -> None:
    delete_state_from(str(tmp_path / "spark"), 1)
