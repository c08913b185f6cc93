"""Files: each line and row once, however files are cut; what is malformed is never nulled or passed over."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.serialization import ByteArraySchema
from flinkish.common.time import Duration
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.connectors.file_system import lines
from flinkish.connectors.file_system.enumerator import StreamFormat
from flinkish.connectors.file_system.source import FileSource
from flinkish.core.source import SourceLimits, SourceSplit, SplitRange
from flinkish.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from flinkish.errors import FinalOperationError, MalformedRecordError, ProgramError, SavepointError
from tests.support.parquet_files import write_parquet
from tests.support.profiles import examples
from tests.support.programs import new_environment, results_of
from tests.support.split_reading import SplitReading, read_all, read_cut

ROW = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])
BYTES = StreamFormat(ByteArraySchema())


def write(path: Path, content: str | bytes, modified_s: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if modified_s is not None:
        os.utime(path, (modified_s, modified_s))
    return path


# ---- lines

contents = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"", "ü€".encode(), b"longer than others", b"\xff", b"\xef\xbb\xbf"]),
    max_size=12,
).map(b"".join)


@settings(deadline=None, max_examples=examples(60))
@given(contents, st.lists(st.integers(1, 60), max_size=8), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
def test_every_cutting_of_a_file_gives_each_line_once_in_order(
    content: bytes, cuts: list[int], batch_size: int, block: int, scan: int
) -> None:
    kept = content.removeprefix(b"\xef\xbb\xbf")
    if not content:
        return
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        patch.setattr(lines, "SCAN_BYTES", scan)
        write(Path(folder) / "in", content)
        assert read_cut(FileSource(BYTES, [folder]), cuts, batch_size) == kept.splitlines()


@settings(deadline=None, max_examples=examples(60))
@given(contents, st.integers(1, 9))
def test_a_compressed_file_gives_the_lines_that_were_packed(content: bytes, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        write(Path(folder) / "in.gz", gzip.compress(content))
        expected = content.removeprefix(b"\xef\xbb\xbf") if block >= 3 else None
        found = read_all(FileSource(BYTES, [folder]))
        assert expected is None or found == expected.splitlines()


@pytest.mark.parametrize("codec", ["gz", "bz2", "zst", "lz4"])
def test_a_compressed_file_is_read_as_a_whole_and_counts_as_what_it_holds(tmp_path: Path, codec: str) -> None:
    with pa.output_stream(str(tmp_path / f"in.txt.{codec}"), compression="detect") as packed:
        packed.write(b"line of text\n" * 5000)
    reading = SplitReading(FileSource.text(str(tmp_path)), SourceLimits(max_records=10, max_bytes=10))
    (split,) = reading.enumerator.discover(())
    assert reading.enumerator.end_of(split, 0) == (None, True)
    cost = reading.enumerator.cost(split, 0)
    assert 4000 < cost.records < 6000 and 50_000 < cost.bytes < 80_000
    assert read_all(FileSource.text(str(tmp_path)), reading.limits) == ["line of text"] * 5000


def test_files_that_were_packed_in_parts_are_read_to_their_end(tmp_path: Path) -> None:
    write(tmp_path / "a.gz", gzip.compress(b"a\nb") + gzip.compress(b"c\n"))
    write(tmp_path / "b.bz2", bz2.compress(b"d\n") + bz2.compress(b"e\n"))
    assert sorted(read_all(FileSource.text(str(tmp_path)))) == ["a", "bc", "d", "e"]


def test_zeros_behind_a_gzip_file_are_no_damage(tmp_path: Path) -> None:
    write(tmp_path / "a.gz", gzip.compress(b"a\nb\n") + bytes(512) + gzip.compress(b"c\n") + bytes(1000))
    assert read_all(FileSource.text(str(tmp_path))) == ["a", "b", "c"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["in.txt", "in.txt.gz"])
def test_a_file_in_a_wide_encoding_is_refused_by_its_name(tmp_path: Path, encoding: str, name: str) -> None:
    content = "\ufeffa\nb\n".encode(encoding)
    file = write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    for charset in ("UTF-8", "ISO-8859-1"):
        with pytest.raises(MalformedRecordError, match=f"text in {encoding[:6].upper()}.*{file}.*iconv"):
            read_all(FileSource.text(str(file), charset=charset))


def test_a_damaged_compressed_file_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    write(tmp_path / "a.gz", gzip.compress(os.urandom(10_000).replace(b"\n", b""))[:5000])
    with pytest.raises(MalformedRecordError, match=r"damaged: .*a\.gz"):
        read_all(FileSource(BYTES, [str(tmp_path)]))
    write(tmp_path / "a.gz", "no gzip")
    with pytest.raises(MalformedRecordError, match=r"damaged: .*a\.gz"):
        read_all(FileSource(BYTES, [str(tmp_path)]))


def test_what_cannot_be_unpacked_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.deflate", "x")
    with pytest.raises(ProgramError, match=r"compressed in a way.*a\.deflate.*\.gz"):
        read_all(FileSource.text(str(tmp_path)))


def test_lines_of_all_files_below_all_paths_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.txt", "one\ntwo\r\n\nfour")
    write(tmp_path / "in" / "deep down" / "b c.txt", "ü\n")
    write(tmp_path / "in" / "_hidden", "hidden\n")
    write(tmp_path / "in" / ".hidden" / "x", "hidden\n")
    write(tmp_path / "in" / "empty", "")
    write(tmp_path / "in" / "z.gz", gzip.compress(b"packed\n"))
    write(tmp_path / "single.txt", "single\n")
    paths = (str(tmp_path / "in"), f"file://{tmp_path}/in/a.txt", str(tmp_path / "single.txt"))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    assert sorted(read_all(source)) == ["", "four", "one", "packed", "single", "two", "ü"]


def test_a_folder_is_read_once_however_many_links_lead_to_it(tmp_path: Path) -> None:
    write(tmp_path / "in" / "b" / "real.txt", "real\n")
    write(tmp_path / "out" / "far.txt", "far\n")
    for name, target in {
        "in/self": ".",
        "in/a": "b",
        "in/b/up": "..",
        "in/far1": "../out",
        "in/far2": "../out",
        "out/back": "../in",
        "in/same.txt": "b/real.txt",
        "in/nowhere": "nothing",
        "in/ring": "ring",
    }.items():
        (tmp_path / name).symlink_to(target)
    reading = SplitReading(FileSource.text(str(tmp_path / "in"))).run()
    assert sorted(reading.records) == ["far", "real", "real"]
    names = {split.removeprefix(f"{tmp_path}/") for split in reading.known}
    assert names == {"in/b/real.txt", "in/far1/far.txt", "in/same.txt"}


def test_another_charset_can_be_read(tmp_path: Path) -> None:
    write(tmp_path / "latin.txt", "ü\nä\n".encode("latin-1"))
    assert read_all(FileSource.text(f"file://{tmp_path}/latin.txt", charset="ISO-8859-1")) == ["ü", "ä"]


def test_bytes_that_are_no_text_are_an_error_with_file_and_line(tmp_path: Path) -> None:
    write(tmp_path / "latin 1.txt", "a\nü\n".encode("latin-1"))
    with pytest.raises(MalformedRecordError, match=r"is not UTF-8 text.*latin 1\.txt, line 2 \(byte 2\)"):
        read_all(FileSource.text(str(tmp_path)))


def test_json_lines_become_rows(tmp_path: Path) -> None:
    content = ['{"user": "a", "n": 1, "more": [1]}', "", '{"n": 2}', '{"user": null, "n": null}']
    write(tmp_path / "in.json", "\n".join(content))
    records = read_all(FileSource.json(str(tmp_path / "in.json"), type_info=ROW))
    assert records == [Row(user="a", n=1), Row(user=None, n=2), Row(user=None, n=None)]


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
@pytest.mark.parametrize("name", ["in.json", "in.json.gz"])
def test_a_malformed_json_line_is_an_error_with_its_file_place_and_text(tmp_path: Path, line: str, name: str) -> None:
    content = f'{{"user": "good", "n": 1}}\r\n\n{line}\n'.encode()
    file = write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(MalformedRecordError) as error:
        read_all(FileSource.json(str(file), type_info=ROW))
    assert f"file {file}, line 3 (byte 27)" in str(error.value)
    assert f"'{line}'" in str(error.value)


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9))
def test_the_number_of_a_malformed_line_does_not_depend_on_the_cutting(cut: int, batch_size: int, block: int) -> None:
    content = b"1\r\n22\n\n333\r4\n\xff\n5\n"
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        write(Path(folder) / "in", content)
        with pytest.raises(MalformedRecordError, match=r"line 6 \(byte 13\)"):
            read_cut(FileSource.text(folder), [cut], batch_size)


def test_malformed_lines_are_passed_over_only_on_demand(tmp_path: Path) -> None:
    write(tmp_path / "in.json", '{"n": 1}\n{"user": "a", "n": "x"}\n[]\n{"n": 2} {}\n{"n": 3}\n')
    source = FileSource.json(str(tmp_path / "in.json"), type_info=ROW, ignore_parse_errors=True)
    assert [tuple(row) for row in read_all(source)] == [(None, 1), ("a", None), (None, 3)]
    write(tmp_path / "in.csv", "a,1\nb,x\nc\nd,4,5\ne,6\n")
    source = FileSource.csv(str(tmp_path / "in.csv"), type_info=ROW, ignore_parse_errors=True)
    assert [tuple(row) for row in read_all(source)] == [("a", 1), ("b", None), ("c", None), ("e", 6)]


def test_the_header_of_a_csv_file_has_the_names_of_the_fields(tmp_path: Path) -> None:
    file = write(tmp_path / "in.csv", "n,user\na,1\n")
    with pytest.raises(MalformedRecordError, match=rf"{file}, line 1 \(byte 0\).*a header with the names user, n"):
        read_all(FileSource.csv(str(file), type_info=ROW, header=True))


def test_csv_lines_become_rows_without_their_headers(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", '\ufeffuser;n\n"a;b";1\n\n"c""d";2\n')
    write(tmp_path / "in" / "b.csv", "user;n\ne;3\n")
    source = FileSource.csv(str(tmp_path / "in"), type_info=ROW, delimiter=";", header=True)
    assert {row.user: row.n for row in read_all(source)} == {"a;b": 1, 'c"d': 2, "e": 3}


@pytest.mark.parametrize("line", ["a", "a,1,2", "a,x", '"a,1'])
def test_a_malformed_csv_line_is_an_error_with_its_file(tmp_path: Path, line: str) -> None:
    write(tmp_path / "in.csv", f"good,1\n{line}\nb,2\n")
    with pytest.raises(MalformedRecordError, match=f"{tmp_path / 'in.csv'}, line 2 "):
        read_all(FileSource.csv(str(tmp_path / "in.csv"), type_info=ROW))


@pytest.mark.parametrize("ignoring", [False, True])
@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_a_line_break_inside_quotes_belongs_to_its_field(tmp_path: Path, name: str, ignoring: bool) -> None:
    content = b'a,1\n"b\r\ninvented,9\r\n",2\r\nc,3'
    write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    source = FileSource.csv(str(tmp_path), type_info=ROW, ignore_parse_errors=ignoring)
    records = read_all(source, SourceLimits(max_bytes=4))
    assert [tuple(row) for row in records] == [("a", 1), ("b\r\ninvented,9\r\n", 2), ("c", 3)]


@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_an_error_in_csv_counts_the_lines_inside_quotes(tmp_path: Path, name: str) -> None:
    content = b'"a\nb\r\nc",1\n\n"d",x\n'
    write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(MalformedRecordError, match=r"line 5 \(byte 12\)"):
        read_all(FileSource.csv(str(tmp_path), type_info=ROW))


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    file = write(tmp_path / "in.csv", 'a,1\n"b,2\n' + "c,3\n" * 1000)
    with pytest.raises(MalformedRecordError, match=rf"quote is not closed \[file {file}, line 2 \(byte 4\)\]"):
        read_all(FileSource.csv(str(file), type_info=ROW, ignore_parse_errors=True), max_record_bytes=500)


@pytest.mark.parametrize("name", ["in.txt", "in.txt.gz", "in.txt.bz2", "in.txt.zst"])
@pytest.mark.parametrize("block", [64, 2 * 1024 * 1024])
def test_a_line_beyond_the_limit_is_an_error_with_file_and_line(
    tmp_path: Path, name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    file = tmp_path / name
    with pa.output_stream(str(file), compression="detect") as packed:
        packed.write(b"\xef\xbb\xbfa\r\n" + b"b" * 500 + b"\r\n\n" + b"c" * 501 + b"\nd\n")
    assert len(read_all(FileSource(BYTES, [str(file)]), max_record_bytes=501)) == 5
    with pytest.raises(MalformedRecordError, match=rf"more than 500 bytes \[file {file}, line 4 \(byte 509\)\]"):
        read_all(FileSource(BYTES, [str(file)]), max_record_bytes=500)


def test_a_packed_line_of_any_length_takes_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "in.gz", "wb") as packed:
        for _ in range(60):
            packed.write(b"a" * 1_000_000)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(
            MalformedRecordError, match=r"more than 4,000,000 bytes \[file .*in\.gz, line 1 \(byte 0\)\]"
        ):
            read_all(FileSource.text(str(tmp_path)), max_record_bytes=4_000_000)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 10_000_000


def test_the_limit_of_a_record_is_an_option_of_the_job(tmp_path: Path) -> None:
    write(tmp_path / "in.txt", "a" * 2000 + "\n")
    results: list[Any] = []
    for limit in ("2 kb", "1 kb"):
        env = new_environment(1, flinkish__source__max_record_bytes=limit)
        stream = env.from_source(FileSource.text(str(tmp_path)), WatermarkStrategy.no_watermarks(), "files")
        if limit == "1 kb":
            with pytest.raises(MalformedRecordError, match=r"more than 1,024 bytes.*in\.txt, line 1"):
                results_of(stream)
        else:
            results += results_of(stream)
    assert len(results) == 1


def test_a_csv_file_that_an_earlier_version_has_cut_is_read_on_where_it_was(tmp_path: Path) -> None:
    file = write(tmp_path / "in.csv", 'a,1\nb,2\n"c\n",3\nd,4\n')
    stat = file.stat()
    split = SourceSplit(str(file), 0, stat.st_size, {"bytes": stat.st_size, "modified_ns": stat.st_mtime_ns})
    source = FileSource.csv(str(tmp_path), type_info=ROW)
    reading = SplitReading(source, restored=[split], positions={split.id: 4}).run()
    assert [tuple(row) for row in reading.records] == [("b", 2), ("c\n", 3), ("d", 4)]


def test_only_the_first_line_of_a_csv_file_is_its_header(tmp_path: Path) -> None:
    texts = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.STRING()])
    write(tmp_path / "in.csv", "\ufeff\na,b\na,b\nc,d\n")
    records = read_all(FileSource.csv(str(tmp_path), type_info=texts, header=True))
    assert [tuple(row) for row in records] == [("a", "b"), ("c", "d")]


def test_csv_without_quotes_and_escapes_is_cut_into_ranges(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("text").add_number_column("n").disable_quote_char().build()
    write(tmp_path / "in.csv", "".join(f'"{n},{n}\n' for n in range(100)))
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    reading = SplitReading(source, SourceLimits(max_bytes=100)).run()
    assert len(reading.epochs) > 5 and [row.n for row in reading.records] == list(range(100))


csv_texts = st.text(
    st.one_of(st.sampled_from(",;|§\"'\\^#\n\r \t\ufeffa"), st.characters(exclude_categories=["Cs"])), max_size=6
)


@st.composite
def csv_schemas(draw: st.DrawFn) -> tuple[CsvSchema, bool]:
    """A schema of one or two columns, in any dialect, and whether it has quotes."""
    builder = CsvSchema.builder().add_string_column("a, #")
    if draw(st.booleans()):
        builder.add_string_column("b")
    builder.set_column_separator(draw(st.sampled_from(",|\t§")))
    quote, escape = draw(st.sampled_from(["'", '"', "ü", None])), draw(st.sampled_from(["\\", "^", None]))
    builder.disable_quote_char() if quote is None else builder.set_quote_char(quote)
    builder.disable_escape_char() if escape is None else builder.set_escape_char(escape)
    builder.set_line_separator(draw(st.sampled_from(["\n", "\r", "\r\n"])))
    builder.set_allow_comments(draw(st.booleans())).set_use_header(draw(st.booleans()))
    return builder.build(), quote is not None


#: What a dialect without quotes can express, if no escape character is in it.
plain_texts = st.text(st.sampled_from("\"'ab1\u00e9-./"), min_size=1, max_size=6)


@settings(deadline=None, max_examples=examples(200))
@given(csv_schemas(), st.data(), st.integers(1, 40))
def test_what_the_csv_sink_writes_the_csv_source_reads(
    schema_and_quotes: tuple[CsvSchema, bool], data: st.DataObject, block: int
) -> None:
    schema, has_quotes = schema_and_quotes
    texts = csv_texts if has_quotes else plain_texts
    rows = [pair[: len(schema)] for pair in data.draw(st.lists(st.tuples(texts, texts), max_size=6))]
    writer = CsvBulkWriters.for_schema(schema).create()
    writer.add_batch([Row(*row) for row in rows])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        write(Path(folder) / "in.csv", writer.finish())
        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), folder).build()
        assert [tuple(row) for row in read_all(source)] == rows


def test_an_epoch_of_lines_is_bounded_in_bytes_and_in_estimated_records(tmp_path: Path) -> None:
    write(tmp_path / "in.txt", "0123456789abcde\n" * 1000)
    by_bytes = SplitReading(FileSource.text(str(tmp_path)), SourceLimits(max_bytes=1600)).run()
    assert [len(epoch) for epoch in by_bytes.epochs] == [100] * 10
    by_records = SplitReading(FileSource.text(str(tmp_path)), SourceLimits(max_records=250)).run()
    assert [len(epoch) for epoch in by_records.epochs] == [250] * 4


# ---- which files


def test_files_are_found_in_the_order_of_time_and_then_of_names(tmp_path: Path) -> None:
    for name, modified_s in (("b", 20), ("a", 20), ("z", 10), ("deep/c", 15)):
        write(tmp_path / name, f"{name}\n", modified_s)
    assert read_all(FileSource.text(str(tmp_path))) == ["z", "deep/c", "a", "b"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", "a1 a2 b1 x/a1 x/y/c"),
        ("a?", "a1 a2"),
        ("[ab]1", "a1 b1"),
        ("[a-b]2", "a2"),
        ("[^a]1", "b1"),
        ("{a1,x/{a1,y}}", "a1 x/a1 x/y/c"),
        ("*/a*", "x/a1"),
        ("*/*/c", "x/y/c"),
        ("_*", "_h"),
        (r"\*s", "*s"),
        ("x/", "x/a1 x/y/c"),
    ],
)
def test_wildcards_are_hadoops(tmp_path: Path, pattern: str, found: str) -> None:
    for name in ("a1", "a2", "b1", "_h", "x/a1", "x/y/c", "x/.c"):
        write(tmp_path / name, f"{name}\n", 1)
    if pattern == r"\*s":
        write(tmp_path / "*s", "*s\n", 1)
        write(tmp_path / "ss", "ss\n", 1)
    assert sorted(read_all(FileSource.text(f"{tmp_path}/{pattern}"))) == found.split()


@pytest.mark.parametrize("name", ["data[1]", "data{1,2}", "data*", "data?", "data{1", r"da\ta", "[1]", "*"])
@pytest.mark.parametrize(
    ("path", "found"),
    [("", "a b deep/a"), ("/a", "a"), ("/?", "a b"), ("/{a,deep/a}", "a deep/a"), ("/deep", "deep/a")],
)
def test_a_path_that_exists_as_it_is_written_is_no_pattern(tmp_path: Path, name: str, path: str, found: str) -> None:
    for other in ("data1", "data2", "1", "data", name):
        for file in ("a", "b", "deep/a"):
            write(tmp_path / other / file, f"{other}/{file}\n", 1)
    # alternatives in braces are expanded before a name is looked for behind another wildcard
    behind_wildcard = [] if "{" in name + path else [f"{tmp_path}/../{tmp_path.name}*/{name}"]
    for below in (f"{tmp_path}/{name}", f"file://{tmp_path}/{name}", *behind_wildcard):
        source = FileSource.text(below + path)
        source.check_continuation(None, {})
        assert sorted(read_all(source)) == [f"{name}/{file}" for file in found.split()]


def test_paths_that_do_not_exist_are_the_programs_error_before_anything_runs(tmp_path: Path) -> None:
    none = FileSource.text(str(tmp_path / "none"))
    for source in (none, none.monitor(), FileSource.text(f"{tmp_path}/*.txt")):
        for action in (lambda: source.check_continuation(None, {}), lambda: source.create_enumerator([]).discover(())):  # noqa: B023
            with pytest.raises(ProgramError, match=r"does not exist|nothing matches"):
                action()
    FileSource.text(f"{tmp_path}/*.txt").monitor().check_continuation(None, {})
    assert FileSource.text(str(tmp_path)).check_continuation(None, {"a": "b"}) == {"a": "b"}
    with pytest.raises(ProgramError, match="without a path"):
        FileSource.text()
    with pytest.raises(ProgramError, match="not closed"):
        FileSource.text("/in/{a,b").check_continuation(None, {})


def test_a_relative_path_is_the_one_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", "a\n")
    monkeypatch.chdir(tmp_path)
    source = FileSource.text("in")
    monkeypatch.chdir("/")
    assert read_all(source) == ["a"]


def test_the_set_of_a_bounded_source_is_static(tmp_path: Path) -> None:
    write(tmp_path / "a", "a\n")
    source = FileSource.text(str(tmp_path))
    first = SplitReading(source)
    assert not first.enumerator.complete
    (found,) = first.enumerator.discover(())
    assert first.enumerator.complete
    write(tmp_path / "b", "b\n")
    assert first.enumerator.discover({found.id}) == ()
    # the query goes on in another process
    again = source.create_enumerator([])
    assert list(again.discover({found.id})) == [] and again.complete
    # but a new one, from a savepoint, looks anew
    restored = source.create_enumerator([found])
    assert [split.id for split in restored.discover({found.id})] == [str(tmp_path / "b")]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_monitored_source_looks_again_when_its_interval_has_passed(tmp_path: Path) -> None:
    clock = Clock()
    write(tmp_path / "a", "a\n", 500)
    source = FileSource.text(str(tmp_path)).monitor()
    enumerator = lines.LineFileEnumerator([str(tmp_path)], 5.0, (), clock)
    reading = SplitReading(source, enumerator=enumerator)
    assert reading.run().records == ["a"]
    assert not source.bounded and not enumerator.complete
    write(tmp_path / "old", "old\n", 1)
    write(tmp_path / "being made", "")
    assert reading.run_epoch() == []
    clock.now_s += 5
    assert reading.run().records == ["a", "old"]
    write(tmp_path / "being made", "made\n")
    clock.now_s += 5
    assert reading.run().records == ["a", "old", "made"]
    # frozen: one look more at what is there now
    write(tmp_path / "last", "last\n")
    enumerator.freeze()
    assert reading.run().records == ["a", "old", "made", "last"]
    write(tmp_path / "later", "later\n")
    clock.now_s += 50
    assert reading.run_epoch() == []


def test_a_source_is_bounded_unless_it_monitors(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    assert builder.build().bounded
    assert not builder.monitor_continuously(Duration.of_seconds(1)).build().bounded
    assert builder.process_static_file_set().build().bounded
    assert not FileSource.text(str(tmp_path)).monitor().bounded


def test_a_restored_source_goes_on_in_a_file_where_it_was(tmp_path: Path) -> None:
    write(tmp_path / "a", "1\n2\n3\n", 10)
    write(tmp_path / "b", "4\n", 20)
    before = SplitReading(FileSource.text(str(tmp_path)), SourceLimits(max_bytes=3))
    before.run_epoch()
    assert before.records == ["1", "2"]
    write(tmp_path / "c", "5\n", 5)
    after = SplitReading(before.source, restored=list(before.known.values()), positions=before.positions).run()
    assert after.records == ["3", "4", "5"]


def position_of(file: str, at: Any = 2, end: Any = 6, info: Any = None) -> str:
    split = [file, at, end, {"bytes": 6, "modified_ns": 5} if info is None else info]
    return json.dumps({"complete": True, "ended": ["/elsewhere/old"], "splits": [split]})


@pytest.mark.parametrize("path", ["in", "in/*.txt", "{n*e,in/a.txt,in/deep}", "i[n]/d*", "*", "in/../in", "in/_h/x"])
@pytest.mark.parametrize(
    ("file", "named_by"),
    [
        ("in/a.txt", ["in", "in/*.txt", "{n*e,in/a.txt,in/deep}", "*", "in/../in"]),
        ("in/deep/b", ["in", "{n*e,in/a.txt,in/deep}", "i[n]/d*", "*", "in/../in"]),
        ("in/gone", ["in", "*", "in/../in"]),
        ("in/_h/x", ["in/_h/x"]),
        ("other/secret", ["*"]),
        ("in/../other/secret", []),
        ("in/deep/../../other/secret", []),
        ("in.key", []),
        ("/etc/passwd", []),
        ("s3://bucket/in/a.txt", []),
        ("", []),
    ],
)
def test_a_position_leads_only_to_files_that_the_paths_name(
    tmp_path: Path, path: str, file: str, named_by: list[str]
) -> None:
    for name in ("in/a.txt", "in/deep/b", "in/_h/x", "other/secret"):
        write(tmp_path / name, "1\n2\n3\n")
    source = FileSource.text(f"{tmp_path}/{path}").monitor()
    file = file if "/" in (file[:1], file[4:5]) else f"{tmp_path}/{file}"
    if path in named_by:
        source.check_continuation(position_of(file), {})
        return
    with pytest.raises(FinalOperationError, match="the source is to go on in the file .*none of its paths names") as at:
        source.check_continuation(position_of(file), {})
    assert file in str(at.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        position_of("/in/a", at=-1),
        position_of("/in/a", at=7),
        position_of("/in/a", at=None),
        position_of("/in/a", info=7),
        position_of("/in/a", info={"bytes": "6", "modified_ns": 5}),
        position_of("/in/a", info={"bytes": -6, "modified_ns": 5}),
    ],
)
def test_what_is_no_position_of_files_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path / "a", "1\n")
    with pytest.raises(SavepointError, match="the position .* of a source cannot be read"):
        FileSource.text(str(tmp_path)).check_continuation(text.replace("/in", str(tmp_path)), {})


# ---- files that do not stay as they are


@pytest.mark.parametrize("change", ["gone", "shorter", "replaced"])
@pytest.mark.parametrize("kind", ["text", "parquet"])
def test_a_file_that_has_changed_since_it_was_found_is_an_error_that_names_it(
    tmp_path: Path, change: str, kind: str
) -> None:
    file = tmp_path / "in"
    write_parquet(file, 4, 2)
    source = FileSource.text(str(file)) if kind == "text" else FileSource.parquet(str(file), type_info=ROW)
    reading = SplitReading(source)
    (split,) = reading.enumerator.discover(())
    if change == "gone":
        file.unlink()
    else:
        write(file, file.read_bytes()[: -1 if change == "shorter" else None], 1)
    expected = {"gone": "is gone", "shorter": r"bytes and had \d+", "replaced": "was replaced"}[change]
    with pytest.raises(FinalOperationError, match=f"{expected}.*{file}"):
        reading.read([SplitRange(split, 0, 1)])
    if kind == "text" and change != "gone":
        # which is read as a whole may have been mended
        assert reading.enumerator.cost(split, 0).records
        return
    with pytest.raises(FinalOperationError, match=f"{expected}.*{file}"):
        reading.enumerator.cost(split, 0)


@pytest.mark.parametrize("whole_files", [False, True])
def test_the_records_of_a_file_of_lines_are_estimated_alike_whatever_was_looked_at_before(
    tmp_path: Path, whole_files: bool
) -> None:
    for place, line in enumerate(["1", "a line", "a line that is longer"]):
        write(tmp_path / str(place), f"{line}\n" * 50, place)

    def found() -> tuple[lines.LineFileEnumerator, Sequence[SourceSplit]]:
        made = lines.LineFileEnumerator([str(tmp_path)], None, whole_files=whole_files)
        return made, made.discover(())

    first, splits = found()
    expected = [first.cost(split, 0) for split in splits]
    units = [1 if whole_files else split.end for split in splits]
    assert [round(cost.records * of_it) for cost, of_it in zip(expected, units)] == [50] * 3
    for place, split in enumerate(splits):
        assert found()[0].cost(split, 0) == expected[place]


def test_a_file_that_grows_is_read_as_far_as_it_went_when_it_was_found(tmp_path: Path) -> None:
    file = write(tmp_path / "in", "a\nb")
    reading = SplitReading(FileSource.text(str(file)))
    (split,) = reading.enumerator.discover(())
    with file.open("a") as more:
        more.write("c\nd\n")
    assert reading.read([SplitRange(split, 0, 2), SplitRange(split, 2, 3, True)]) == ["a", "b"]


@pytest.mark.parametrize("kind", ["text", "parquet"])
def test_a_file_that_is_read_as_a_whole_may_have_been_mended(tmp_path: Path, kind: str) -> None:
    """An epoch has failed on a bad line, somebody has mended it, and the epoch is read again."""
    file = tmp_path / "in"
    if kind == "text":
        write(file, "1\nbad\n3\n")
    else:
        write_parquet(file, 2, 2)
    source = FileSource.text(str(file)) if kind == "text" else FileSource.parquet(str(file), type_info=ROW)
    reading = SplitReading(source)
    (split,) = reading.enumerator.discover(())
    if kind == "text":
        write(file, "1\nmended\n3\n", 1)
        assert reading.read([SplitRange(split, 0, split.end, True)]) == ["1", "mended", "3"]
    else:
        write_parquet(file, 4, 2)
        assert len(reading.read([SplitRange(split, 0, None, True)])) == 4


def test_a_split_is_named_by_its_path_without_keys() -> None:
    from flinkish.connectors.file_system.listing import id_prefix

    assert id_prefix("abfs://container@account/in", "container/in") == ("abfs://account/", 15)
    assert SourceSplit("x").info is None


def test_a_reader_keeps_one_file_open_and_only_while_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = []
    open_split = lines.open_split
    monkeypatch.setattr(lines, "open_split", lambda *of: handles.append(one := open_split(*of)) or one)
    for name in "ab":
        write(tmp_path / name, "1\n2\n", 1)
    source = FileSource.text(str(tmp_path))
    a, b = source.create_enumerator([]).discover(())
    reader: Any = source.create_reader()
    first = SplitRange(a, 0, 2)
    reader.open([first], 10)
    list(reader.read(first, 10))
    second = SplitRange(a, 2, 4)
    reader.open([second], 10)
    list(reader.read(second, 10))
    (handle,) = handles
    assert not handle.closed
    reader.open([SplitRange(b, 0, 4)], 10)
    assert handle.closed and handles == [handle]


def test_the_suffix_gzip_is_a_compression_as_in_flink(tmp_path: Path) -> None:
    write(tmp_path / "a.gzip", gzip.compress(b"a\nb\n"))
    assert read_all(FileSource.text(str(tmp_path))) == ["a", "b"]


def test_a_byte_order_mark_counts_as_no_line_where_an_error_names_the_line(tmp_path: Path) -> None:
    write(tmp_path / "in", b"\xef\xbb\xbf" + b'{"user": "a"}\n{"n": "x"}\n')
    with pytest.raises(MalformedRecordError, match=r"line 2 \(byte 17\)"):
        read_all(FileSource.json(str(tmp_path), type_info=ROW))


def test_a_name_that_is_not_utf8_is_an_error_that_names_it(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "w") as file:
        file.write("a\n")
    for path in (str(tmp_path), f"{tmp_path}/*"):
        with pytest.raises(ProgramError, match=r"caf\\xe9' is not UTF-8"):
            read_all(FileSource.text(path))
