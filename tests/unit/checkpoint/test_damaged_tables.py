"""The log of a table of state: what Delta needs of it must be there and whole; a damaged table is set aside."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.checkpoint.table import set_aside_if_damaged
from flinkish.delta.check import check_log
from flinkish.errors import SavepointError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Versions 0 to 3."""
    folder = tmp_path / "state" / "_delta_log"
    folder.mkdir(parents=True)
    for version in range(4):
        (folder / f"{version:020d}.json").write_text(json.dumps({"commitInfo": {}}) + "\n")
    return folder


def file(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


@pytest.mark.parametrize(
    ("text", "problem"), [("", "empty"), ('{"add":', "unreadable"), ("[]\n", "not what Delta writes")]
)
def test_a_damaged_commit_is_named(log: Path, text: str, problem: str) -> None:
    check_log(str(log.parent), None)
    check_log(str(log.parent), 2)
    file(log, 2).write_text(text)
    with pytest.raises(SavepointError, match=f"{file(log, 2)} is {problem}"):
        check_log(str(log.parent), None)
    check_log(str(log.parent), 1)


def test_a_commit_that_is_missing_is_named_also_if_it_is_the_last_one(log: Path) -> None:
    file(log, 3).unlink()
    check_log(str(log.parent), None)
    with pytest.raises(SavepointError, match=f"{file(log, 3)} is missing"):
        check_log(str(log.parent), 3)


def test_what_is_summed_up_by_a_checkpoint_is_not_needed(log: Path) -> None:
    file(log, 0).unlink()
    file(log, 2).write_text("")
    pq.write_table(pa.table({"add": [{"path": "a.parquet"}]}), log / f"{2:020d}.checkpoint.parquet")
    check_log(str(log.parent), None)
    with pytest.raises(SavepointError, match=f"{file(log, 0)} is missing"):
        check_log(str(log.parent), 1)


def test_a_removed_file_that_the_version_before_does_not_have_is_damage(log: Path) -> None:
    """With a bit that has flipped in its name, the rows of the file that was replaced would come back."""

    def commit(version: int, *actions: tuple[str, str]) -> None:
        lines = [{kind: {"path": path, "dataChange": True}} for kind, path in actions]
        file(log, version).write_text("".join(json.dumps(line) + "\n" for line in [{"commitInfo": {}}, *lines]))

    commit(0, ("add", "a.parquet"), ("add", "b.parquet"))
    # a file with new deletion vectors is removed and added by one commit
    commit(1, ("add", "a.parquet"), ("remove", "a.parquet"), ("remove", "b.parquet"), ("add", "c.parquet"))
    commit(2, ("remove", "c.parquet"))
    check_log(str(log.parent), None)
    commit(2, ("remove", "d.parquet"))
    check_log(str(log.parent), 1)
    with pytest.raises(SavepointError, match=f"{file(log, 2)} is not what Delta writes .it removes 'd.parquet'"):
        check_log(str(log.parent), None)
    pq.write_table(pa.table({"add": [{"path": "d.parquet"}]}), log / f"{1:020d}.checkpoint.parquet")
    check_log(str(log.parent), None)


@pytest.mark.parametrize(
    "name", ["part-`1.parquet", "part 1.parquet", "part:1.parquet", "part-%4.parquet", "part?1", "p#1"]
)
def test_a_file_whose_name_is_no_uri_is_damage(log: Path, name: str) -> None:
    """With a flipped bit in a name Delta fails with an exception that tells neither the table nor the file."""
    action = {"add": {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    file(log, 2).write_text(json.dumps(action) + "\n")
    check_log(str(log.parent), 1)
    with pytest.raises(SavepointError, match=f"{file(log, 2)} is not what Delta writes"):
        check_log(str(log.parent), None)


def test_a_damaged_table_is_set_aside_and_that_is_said(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = log.parent
    set_aside_if_damaged(str(table), 7, "shop", lambda: None)
    assert log.is_dir() and not caplog.records
    file(log, 3).write_text("")
    with caplog.at_level(logging.WARNING, "flinkish"):
        set_aside_if_damaged(str(table), 7, "shop", lambda: None)
    assert not table.exists() and (table.parent / "state-damaged-7" / "_delta_log").is_dir()
    assert "job 'shop'" in caplog.text and "the next checkpoint is a full one" in caplog.text
    set_aside_if_damaged(str(table), 7, "shop", lambda: None)


def test_data_files_of_a_first_checkpoint_that_a_killed_driver_began_are_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "state"
    (table / "_delta_log").mkdir(parents=True)
    (table / "part-0.parquet").touch()
    with caplog.at_level(logging.WARNING, "flinkish"):
        set_aside_if_damaged(str(table), 0, "shop", lambda: None)
    assert table.is_dir() and not caplog.records
    # with a checkpoint that needs it, the log is not one that never was
    set_aside_if_damaged(str(table), 1, "shop", lambda: None)
    assert not table.exists()
