"""What the log of a Delta table promises on every kind of storage, as functions of an empty directory: the same if a
commit is published by a hard link, by a rename that replaces nothing, or by a conditional request."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flinkish.delta.actions import PLAIN_WRITER_VERSION, added_file, append_info, new_table
from flinkish.delta.check import check_log
from flinkish.delta.log import DeltaLog
from flinkish.errors import SavepointError
from flinkish.storage.stores import storage_of

Check = Callable[[str], None]


def append(name: str, **more: Any) -> list[dict[str, Any]]:
    """The actions of a commit that adds a file."""
    return [append_info(0, **more), added_file(name, 10, 0, {"numRecords": 1})]


def table_at(directory: str) -> DeltaLog:
    """A table with one version, of one file."""
    log = DeltaLog(f"{directory}/a b/state")
    assert log.publish(0, [*new_table({"key": "string"}, 0, {}), *append("0.parquet")])
    return log


def a_table_is_there_once_its_first_version_is(directory: str) -> None:
    log = DeltaLog(f"{directory}/state")
    assert (log.versions(), log.newest(), log.has(0), log.metadata(), log.protocol()) == ([], None, [False], None, None)
    log = table_at(directory)
    check_log(log.table, None)
    assert (log.versions(), log.newest(), log.has(0, 1)) == ([0], 0, [True, False])
    assert (log.protocol() or {})["minWriterVersion"] == PLAIN_WRITER_VERSION and log.takes_appends()
    assert "key" in (log.metadata() or {})["schemaString"]
    assert log.files_of_first_commit() == log.data_files() == [f"{log.table}/0.parquet"]


def what_was_published_is_read_and_no_other_file_is_left(directory: str) -> None:
    log = table_at(directory)
    assert log.publish(1, append("1.parquet", userMetadata="ü"))
    info, added = log.actions(1)
    assert (info["commitInfo"]["userMetadata"], added["add"]["path"]) == ("ü", "1.parquet")
    assert log.publish(2, [append_info(0), {"remove": {"path": "0.parquet"}}])
    assert [sorted(log.added(version)) for version in (0, 1, None)] == [
        ["0.parquet"],
        ["0.parquet", "1.parquet"],
        ["1.parquet"],
    ]
    names = sorted(entry.name for entry in storage_of(log.path).list(log.path))
    assert names == [f"{version:020d}.json" for version in range(3)]


def of_two_writers_of_a_version_one_is_refused_and_changes_nothing(directory: str) -> None:
    log = table_at(directory)
    with pytest.raises(FileExistsError):
        log.publish(0, append("other.parquet"))
    assert list(log.added()) == ["0.parquet"]


def of_many_that_append_at_once_each_has_a_version_of_its_own(directory: str) -> None:
    log = table_at(directory)

    def publish(number: int) -> int:
        while True:
            version = (log.newest() or 0) + 1
            try:
                assert log.publish(version, append(f"{number}.parquet"))
                return version
            except FileExistsError:
                continue

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(publish, range(1, 9)))
    assert sorted(versions) == log.versions()[1:] == list(range(1, 9))
    assert sorted(log.added()) == [f"{number}.parquet" for number in range(9)]


def a_version_that_is_gone_is_missing_and_a_damaged_one_is_named(directory: str) -> None:
    log = table_at(directory)
    with pytest.raises(FileNotFoundError):
        log.actions(1)
    storage_of(log.path).write(log.file(1), b'{"add": 7}')
    for read in (lambda: log.actions(1), lambda: log.added(), lambda: check_log(log.table, None)):
        with pytest.raises(SavepointError, match=r"00001\.json is not what Delta writes"):
            read()


CONTRACT: list[Check] = [
    a_table_is_there_once_its_first_version_is,
    what_was_published_is_read_and_no_other_file_is_left,
    of_two_writers_of_a_version_one_is_refused_and_changes_nothing,
    of_many_that_append_at_once_each_has_a_version_of_its_own,
    a_version_that_is_gone_is_missing_and_a_damaged_one_is_named,
]
