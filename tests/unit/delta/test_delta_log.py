"""The log of a Delta table on a local disk, and which of its checkpoints is the last."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.delta.log import Appends, DeltaLog, last_checkpoint
from tests.support.delta_contract import CONTRACT, Check, append, table_at


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_on_the_local_file_system(check: Check, tmp_path: Path) -> None:
    check(str(tmp_path))


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_nothing_is_published_and_nothing_left(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = table_at(str(tmp_path))
    appends = Appends(log)
    assert appends.base() == 0

    def link(source: str, target: str) -> None:
        raise OSError(number, "no links")

    monkeypatch.setattr(os, "link", link)
    assert not log.publish(1, append("1.parquet"))
    assert not appends.commit(append("1.parquet"), 0)
    assert appends.base() is None, "from now on Spark writes"
    assert os.listdir(log.path) == [f"{0:020d}.json"]


C = f"{2:020d}.checkpoint"
LATER = f"{4:020d}.checkpoint"


@pytest.mark.parametrize(
    ("names", "last", "expected"),
    [
        ([f"{0:020d}.json"], None, (-1, [])),
        ([f"{C}.parquet"], None, (2, [f"{C}.parquet"])),
        ([f"{C}.parquet"], 1, (-1, [])),
        ([f"{C}.parquet", f"{LATER}.parquet"], 3, (2, [f"{C}.parquet"])),
        ([f"{C}.parquet", f"{LATER}.0000000001.0000000002.parquet"], None, (2, [f"{C}.parquet"])),
        (
            [f"{LATER}.0000000001.0000000002.parquet", f"{LATER}.0000000002.0000000002.parquet"],
            None,
            (4, [f"{LATER}.0000000001.0000000002.parquet", f"{LATER}.0000000002.0000000002.parquet"]),
        ),
        (
            [f"{C}.80a083e8-7026-4e79-81be-64bd76c43a11.json"],
            None,
            (2, [f"{C}.80a083e8-7026-4e79-81be-64bd76c43a11.json"]),
        ),
    ],
    ids=[
        "none",
        "one",
        "a later one",
        "the last up to a version",
        "parts are missing",
        "all parts",
        "of the second form",
    ],
)
def test_the_last_checkpoint_is_the_last_complete_one(
    names: list[str], last: int | None, expected: tuple[int, list[str]]
) -> None:
    assert last_checkpoint(names, last) == expected


def test_a_checkpoint_whose_writer_was_killed_is_not_taken_for_the_table(tmp_path: Path) -> None:
    log = table_at(str(tmp_path))
    assert log.publish(1, append("1.parquet"))
    part = pa.table({"add": [{"path": "1.parquet"}]})
    pq.write_table(part, f"{log.path}/{1:020d}.checkpoint.0000000001.0000000002.parquet")
    assert sorted(log.added()) == ["0.parquet", "1.parquet"]
    pq.write_table(part, f"{log.path}/{1:020d}.checkpoint.parquet")
    assert list(log.added()) == ["1.parquet"]


def test_only_files_that_no_later_version_needs_are_trimmed(tmp_path: Path) -> None:
    log, checked = table_at(str(tmp_path)), list[int]()
    for version in range(1, 5):
        log.publish(version, append(f"{version}.parquet"))
    log.trim(4, lambda: checked.append(1))
    assert log.versions() == list(range(5)) and not checked, "without a checkpoint each is needed"
    pq.write_table(pa.table({"add": [{"path": "0.parquet"}]}), f"{log.path}/{2:020d}.checkpoint.parquet")
    log.trim(1, lambda: checked.append(1))
    assert log.versions() == list(range(5)) and not checked
    log.trim(3, lambda: checked.append(1))
    assert log.versions() == [2, 3, 4] and checked == [1]


@pytest.mark.parametrize(
    ("rule", "takes"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, True),
        ({"minReaderVersion": 1, "minWriterVersion": 4}, False),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["deletionVectors", "appendOnly"]}, True),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, False),
    ],
)
def test_files_are_added_only_where_the_table_asks_no_more_of_its_writers(
    rule: dict[str, object], takes: bool, tmp_path: Path
) -> None:
    log = table_at(str(tmp_path))
    appends = Appends(log)
    assert appends.base() == 0 and appends.commit(append("1.parquet"), 0) and appends.base() == 1
    assert not appends.commit(append("1.parquet"), 0), "another writer was first"
    assert log.publish(2, [{"protocol": rule}])
    assert appends.base() == (2 if takes else None)
    assert DeltaLog(log.table).takes_appends() is takes


def test_whoever_appends_for_years_reads_each_commit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = table_at(str(tmp_path))
    appends, read, actions = Appends(log, ["key"]), list[int](), DeltaLog.actions
    monkeypatch.setattr(DeltaLog, "actions", lambda self, version: read.append(version) or actions(self, version))
    for version in range(50):
        assert appends.base() == version and appends.commit(append(f"{version + 1}.parquet"), version)
    assert read == list(range(1, 50))
    assert Appends(log, ["key", "other"]).base() is None, "the table lacks a column"
