"""Files of rows that tasks write into the directory of a Delta table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.errors import OperationError
from flinkish.spark.data_files import DataFile, RowsToFiles
from flinkish.spark.worker import WorkerFailure, typed_failure
from flinkish.storage.sealed import checksum_path

SCHEMA = pa.schema([("uid", pa.string()), ("value", pa.string())])


def rows(*uids: str | None) -> pa.RecordBatch:
    """A batch with these values in the column uid."""
    return pa.RecordBatch.from_pylist([{"uid": uid, "value": "v"} for uid in uids], schema=SCHEMA)


def written(table: Path, *batches: pa.RecordBatch) -> list[DataFile]:
    """The files of one partition with these batches."""
    files = RowsToFiles(lambda found: found, SCHEMA, str(table), b"secret")(iter(batches))
    return [DataFile(**file) for batch in files for file in batch.to_pylist()]


def test_a_partition_becomes_one_file_whose_description_fits(tmp_path: Path) -> None:
    [file] = written(tmp_path / "table", rows("a", None), rows("b"))
    path = tmp_path / "table" / file.name
    assert pq.read_table(path)["uid"].to_pylist() == ["a", None, "b"]
    assert (file.rows, file.bytes, file.without_uid) == (3, path.stat().st_size, 1)
    assert Path(checksum_path(str(path))).exists()
    assert file.added(7)["add"]["path"] == file.name


def test_a_partition_without_rows_has_no_file(tmp_path: Path) -> None:
    assert written(tmp_path / "table") == []
    assert list((tmp_path / "table").iterdir()) == []


def test_a_task_that_ends_late_writes_nothing_into_a_directory_that_was_removed(tmp_path: Path) -> None:
    task = RowsToFiles(lambda found: found, SCHEMA, str(tmp_path / "table"), b"secret")
    (tmp_path / "table").rmdir()
    with pytest.raises(WorkerFailure):
        list(task(iter([rows("a")])))
    assert list(tmp_path.iterdir()) == []


def test_a_file_whose_rows_could_not_be_made_is_deleted(tmp_path: Path) -> None:
    def fail(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        yield rows(*["a"] * 200_000)
        assert list(tmp_path.glob("*.parquet"))
        raise OperationError("the state is gone")

    with pytest.raises(WorkerFailure) as failed:
        list(RowsToFiles(fail, SCHEMA, str(tmp_path), b"secret")(iter([])))
    error = typed_failure(str(failed.value), b"secret")
    assert error is not None and error.what == "the state is gone"
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_page_of_a_file_is_noticed(tmp_path: Path) -> None:
    [file] = written(tmp_path, rows(*map(str, range(1_000))))
    path = tmp_path / file.name
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + bytes([whole[60] ^ 255]) + whole[61:])
    with pytest.raises(OSError, match=r"(?i)crc|checksum|corrupt"):
        pq.read_table(path, page_checksum_verification=True)
