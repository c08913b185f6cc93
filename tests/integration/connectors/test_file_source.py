"""Files through Spark and the decoders: each line and row once, and what is malformed is never nulled."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flinkish.common.time import Duration
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row
from flinkish.connectors.file_system.paths import processed_files
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.file_system.stream_format import StreamFormat
from flinkish.core.source import SourceLimits
from flinkish.errors import ProgramError, SavepointError
from tests.integration.connectors.reading import read

ROW = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])


def test_lines_of_all_files_below_all_paths_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep down").mkdir(parents=True)
    (tmp_path / "in" / "a.txt").write_text("one\ntwo\r\n\nfour")
    (tmp_path / "in" / "deep down" / "b c.txt").write_text("ü\n")
    (tmp_path / "in" / "_hidden").write_text("hidden\n")
    (tmp_path / "in" / "z.gz").write_bytes(gzip.compress(b"packed\n"))
    (tmp_path / "single.txt").write_text("single\n")
    paths = (str(tmp_path / "in"), str(tmp_path / "single.txt"))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    reading = read(spark, source, tmp_path / "checkpoint")
    assert sorted(reading.records) == ["", "four", "one", "packed", "single", "two", "ü"]


def test_a_single_file_and_another_charset_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("ü\nä\n".encode("latin-1"))
    source = FileSource.text(f"file://{tmp_path}/latin.txt", charset="ISO-8859-1")
    assert read(spark, source, tmp_path / "checkpoint").records == ["ü", "ä"]


def test_bytes_that_are_no_text_are_an_error_with_the_files_name(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "latin 1.txt").write_bytes("ü\n".encode("latin-1"))
    with pytest.raises(Exception, match=r"is not UTF-8 text.*latin 1.txt"):
        read(spark, FileSource.text(str(tmp_path / "in")), tmp_path / "checkpoint")


def test_json_lines_become_rows(spark: SparkSession, tmp_path: Path) -> None:
    lines = ['{"user": "a", "n": 1, "more": [1]}', "", '{"n": 2}', '{"user": null, "n": null}']
    (tmp_path / "in.json").write_text("\n".join(lines))
    reading = read(spark, FileSource.json(str(tmp_path / "in.json"), type_info=ROW), tmp_path / "checkpoint")
    assert reading.records == [Row(user="a", n=1), Row(user=None, n=2), Row(user=None, n=None)]


@pytest.mark.parametrize(
    "line",
    [
        '{"user": "a", "n": 1',
        '{"user": "a"} {"user": "b"}',
        '{"user": "a"} rest',
        '{"n": "x"}',
        '{"n": 1.5}',
        "[1]",
        "7",
    ],
)
def test_a_malformed_json_line_is_an_error_with_its_file_and_text(
    spark: SparkSession, tmp_path: Path, line: str
) -> None:
    (tmp_path / "in.json").write_text(f'{{"user": "good", "n": 1}}\n{line}\n')
    source = FileSource.json(str(tmp_path / "in.json"), type_info=ROW)
    with pytest.raises(Exception) as error:
        read(spark, source, tmp_path / "checkpoint")
    text = str(error.value)
    assert "MalformedRecordError" in text
    assert str(tmp_path / "in.json") in text
    assert f"'{line}'" in text


def test_malformed_lines_are_passed_over_only_on_demand(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"n": 1}\n{"n": "x"}\n{"n": 2}\n')
    source = FileSource.json(str(tmp_path / "in.json"), type_info=ROW, ignore_parse_errors=True)
    assert [row.n for row in read(spark, source, tmp_path / "checkpoint").records] == [1, 2]


def test_csv_lines_become_rows_without_their_headers(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text('user;n\n"a;b";1\n\n"c""d";2\n')
    (tmp_path / "in" / "b.csv").write_text("user;n\ne;3\n")
    source = FileSource.csv(str(tmp_path / "in"), type_info=ROW, delimiter=";", header=True)
    found = {row.user: row.n for row in read(spark, source, tmp_path / "checkpoint").records}
    assert found == {"a;b": 1, 'c"d': 2, "e": 3}


@pytest.mark.parametrize("line", ["a", "a,1,2", "a,x", '"a,1'])
def test_a_malformed_csv_line_is_an_error_with_its_file(spark: SparkSession, tmp_path: Path, line: str) -> None:
    (tmp_path / "in.csv").write_text(f"good,1\n{line}\nb,2\n")
    with pytest.raises(Exception, match=f"MalformedRecordError.*{tmp_path / 'in.csv'}"):
        read(spark, FileSource.csv(str(tmp_path / "in.csv"), type_info=ROW), tmp_path / "checkpoint")


def write_parquet(folder: Path, files: int, rows: int) -> list[tuple[str, int]]:
    folder.mkdir(exist_ok=True)
    values = [(f"u{number}", number) for number in range(files * rows)]
    for file in range(files):
        part = values[file * rows : (file + 1) * rows]
        columns: dict[str, Any] = {"n": [n for _, n in part], "other": [0.5] * rows, "user": [user for user, _ in part]}
        pq.write_table(pa.table(columns), folder / f"part {file}.parquet", row_group_size=max(1, rows // 3))
    return values


@pytest.mark.parametrize("read_in_worker", [False, True])
def test_parquet_gives_rows_or_tuples_of_the_declared_columns(
    spark: SparkSession, tmp_path: Path, read_in_worker: bool
) -> None:
    values = write_parquet(tmp_path / "in", 3, 7)
    rows = FileSource.parquet(str(tmp_path / "in"), type_info=ROW, read_in_worker=read_in_worker)
    found = read(spark, rows, tmp_path / "checkpoint").records
    assert all(isinstance(row, Row) for row in found)
    assert sorted((row.user, row.n) for row in found) == sorted(values)
    tuple_type = Types.TUPLE([Types.LONG(), Types.STRING()])
    tuples = FileSource.parquet(
        str(tmp_path / "in"), type_info=tuple_type, columns=["n", "user"], read_in_worker=read_in_worker
    )
    assert sorted(read(spark, tuples, tmp_path / "other").records) == sorted((n, user) for user, n in values)


@pytest.mark.parametrize("read_in_worker", [False, True])
def test_a_declared_column_that_is_not_there_is_an_error_and_not_null(
    spark: SparkSession, tmp_path: Path, read_in_worker: bool
) -> None:
    write_parquet(tmp_path / "in", 1, 2)
    wrong = Types.ROW_NAMED(["user", "m"], [Types.STRING(), Types.LONG()])
    source = FileSource.parquet(str(tmp_path / "in"), type_info=wrong, read_in_worker=read_in_worker)
    with pytest.raises(ProgramError, match="'m' is not in the file.*n, other, user"):
        read(spark, source, tmp_path / "checkpoint")


def test_files_read_in_the_worker_are_only_listed_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "in", 1, 2)
    source = FileSource.parquet(str(tmp_path / "in"), type_info=ROW, read_in_worker=True)
    plan = source.load(spark, SourceLimits(), None)
    assert plan.columns == ["path"]
    (tmp_path / "in" / "broken.parquet").write_bytes(b"no parquet")
    with pytest.raises(Exception, match="(?s)MalformedRecordError.*broken.parquet"):
        read(spark, source, tmp_path / "checkpoint")


def test_epochs_are_bounded_in_records_and_in_bytes(spark: SparkSession, tmp_path: Path) -> None:
    values = write_parquet(tmp_path / "in", 4, 1000)
    source = FileSource.parquet(str(tmp_path / "in"), type_info=ROW)
    by_records = read(spark, source, tmp_path / "records", SourceLimits(max_records=2000))
    assert [len(epoch) for epoch in by_records.epochs] == [2000, 2000]
    by_bytes = read(spark, source, tmp_path / "bytes", SourceLimits(max_bytes=1))
    assert [len(epoch) for epoch in by_bytes.epochs] == [1000] * 4
    assert sorted((row.user, row.n) for row in by_bytes.records) == sorted(values)


@pytest.mark.parametrize("kind", ["text", "parquet", "worker"])
def test_a_restored_source_goes_on_with_the_files_that_were_not_read(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "in put"
    write_parquet(folder, 2, 5)
    if kind == "text":
        for file in folder.iterdir():
            file.unlink()
        (folder / "a b.txt").write_text("a\n")
    make = {
        "text": lambda: FileSource.text(str(folder)),
        "parquet": lambda: FileSource.parquet(str(folder), type_info=ROW),
        "worker": lambda: FileSource.parquet(str(folder), type_info=ROW, read_in_worker=True),
    }[kind]
    reading = read(spark, make(), tmp_path / "first")
    log_offset = (
        json.loads(reading.end_offset)["logOffset"]
        if isinstance(reading.end_offset, str)
        else reading.end_offset["logOffset"]
    )
    files = processed_files(spark, str(tmp_path / "first"), 0, log_offset)
    assert len(files) == (1 if kind == "text" else 2)
    start = json.dumps({"processed": files})
    if kind == "text":
        (folder / "new.txt").write_text("new\n")
    else:
        pq.write_table(pa.table({"user": ["new"], "n": [0]}), folder / "new.parquet")
    found = read(spark, make(), tmp_path / "second", start=start).records
    assert found == (["new"] if kind == "text" else [Row(user="new", n=0)])


def test_an_offset_that_is_none_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(SavepointError, match="cannot be read"):
        FileSource.text(str(tmp_path / "a.txt")).load(spark, SourceLimits(), '{"logOffset": 3}')


def test_a_path_that_does_not_exist_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="none"):
        FileSource.text(str(tmp_path / "none")).load(spark, SourceLimits(), None)


def test_a_source_is_bounded_unless_it_monitors(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    assert builder.build().bounded
    assert not builder.monitor_continuously(Duration.of_seconds(1)).build().bounded
    assert builder.process_static_file_set().build().bounded
    assert not FileSource.text(str(tmp_path)).monitor().bounded
