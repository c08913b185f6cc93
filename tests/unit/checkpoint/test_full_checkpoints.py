"""A full checkpoint replaces the files of its table by one commit, which Spark makes only where nobody else can."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.checkpoint.table import CheckpointTable
from flinkish.delta.actions import added_file
from flinkish.errors import FencedError
from flinkish.spark.data_files import DataFile
from flinkish.spark.state import SAVEPOINT_ARROW


class SparkWritesError(Exception):
    """The rows were asked for, for Spark to write."""


def by_spark() -> NoReturn:
    raise SparkWritesError


def table(folder: Path, check: Callable[[], None] = lambda: None) -> CheckpointTable:
    return CheckpointTable(None, str(folder / "state"), check)


def files(*keys: str) -> Callable[[str], list[DataFile]]:
    """Writes a row per key to a file."""

    def write(path: str) -> list[DataFile]:
        rows = [dict.fromkeys(SAVEPOINT_ARROW.names, "0") | {"key": key} for key in keys]
        name = f"part-{uuid.uuid4()}.parquet"
        Path(path).mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, SAVEPOINT_ARROW), f"{path}/{name}")
        return [DataFile(name, len(keys), Path(path, name).stat().st_size, 0)] if keys else []

    return write


def keys_in(checkpoints: CheckpointTable, version: int) -> list[str]:
    found = [pq.read_table(path).column("key").to_pylist() for path in checkpoints.log.data_files(version)]
    return [key for some in found for key in some]


def test_each_full_checkpoint_is_one_version_with_its_own_rows_and_every_tenth_is_written_by_spark(
    tmp_path: Path,
) -> None:
    checkpoints = table(tmp_path)
    for number in range(10):
        written = checkpoints.overwrite(by_spark, files(f"a{number}", f"b{number}"))
        assert (written.version, written.rows) == (number, 2) and written.bytes > 0
        assert checkpoints.changed_since(number - 1) and not checkpoints.changed_since(number)
    for number in range(10):
        assert keys_in(checkpoints, number) == [f"a{number}", f"b{number}"]
    # only Delta sums up its log, and it does that at the tenth version, if it commits that
    with pytest.raises(SparkWritesError):
        checkpoints.overwrite(by_spark, files("c"))
    assert checkpoints.log.newest() == 9


def test_a_state_that_has_become_empty_is_a_version_without_rows(tmp_path: Path) -> None:
    checkpoints = table(tmp_path)
    checkpoints.overwrite(by_spark, files("a"))
    assert checkpoints.overwrite(by_spark, files()).rows == 0
    assert (keys_in(checkpoints, 0), keys_in(checkpoints, 1)) == (["a"], [])


def test_what_replaced_files_leave_is_deleted_when_no_checkpoint_needs_them(tmp_path: Path) -> None:
    checkpoints = table(tmp_path)
    for key in ("a", "b", "c"):
        checkpoints.overwrite(by_spark, files(key))
    assert checkpoints.delete_unneeded(1) == 1
    assert (keys_in(checkpoints, 1), keys_in(checkpoints, 2)) == (["b"], ["c"])


def test_a_driver_that_loses_the_job_while_its_tasks_write_commits_nothing(tmp_path: Path) -> None:
    def lost() -> NoReturn:
        raise FencedError("another driver owns the job")

    table(tmp_path).overwrite(by_spark, files("a"))
    old = table(tmp_path, lost)
    with pytest.raises(FencedError):
        old.overwrite(by_spark, files("b"))
    assert (old.log.newest(), keys_in(old, 0)) == (0, ["a"])


def test_of_two_drivers_that_replace_the_same_version_one_does(tmp_path: Path) -> None:
    checkpoints = table(tmp_path)
    checkpoints.overwrite(by_spark, files("a"))

    def meanwhile(path: str) -> list[DataFile]:
        table(tmp_path).overwrite(by_spark, files("of the other one"))
        return files("b")(path)

    with pytest.raises(FileExistsError):
        checkpoints.overwrite(by_spark, meanwhile)
    assert keys_in(checkpoints, 1) == ["of the other one"]


def test_files_of_which_rows_were_deleted_are_replaced_by_spark(tmp_path: Path) -> None:
    checkpoints = table(tmp_path)
    checkpoints.overwrite(by_spark, files("a"))
    (path,) = checkpoints.log.added(0)
    added = added_file(path, 1, 0, {})
    added["add"]["deletionVector"] = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1}
    assert checkpoints.log.publish(1, [{"remove": {"path": path, "dataChange": True}}, added])
    with pytest.raises(SparkWritesError):
        checkpoints.overwrite(by_spark, files("b"))
