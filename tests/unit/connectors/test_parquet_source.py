"""Parquet files: each row once, in order, however files are cut; only what is needed is held and read."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.common.types import Row
from flinkish.connectors.file_system import parquet
from flinkish.connectors.file_system.enumerator import LOOKING_THREADS
from flinkish.connectors.file_system.parquet import ParquetFacts, ParquetFileEnumerator
from flinkish.connectors.file_system.source import FileSource
from flinkish.core.source import SourceLimits, SourceSplit, SplitRange
from flinkish.errors import MalformedRecordError, ProgramError
from flinkish.runtime.sources.epoch_planner import EpochPlanner
from flinkish.runtime.sources.progress import SourceProgress, ranges_between
from flinkish.runtime.sources.split_list import SegmentsInMemory
from tests.support.parquet_files import write_parquet
from tests.support.profiles import examples
from tests.support.split_reading import SplitReading, read_all, read_cut

ROW = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])


@settings(deadline=None, max_examples=examples(60))
@given(
    st.integers(0, 60), st.integers(1, 25), st.lists(st.integers(1, 60), max_size=6), st.integers(1, 9),
    st.integers(1, 30), st.integers(1, 200),
)  # fmt: skip
def test_every_cutting_of_a_parquet_file_gives_each_row_once_in_order(
    rows: int, group: int, cuts: list[int], batch_size: int, read_records: int, read_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "READ_RECORDS", read_records)
        patch.setattr(parquet, "READ_BYTES", read_bytes)
        patch.setattr(parquet, "JUDGED_RECORDS", 1)
        values = write_parquet(Path(folder) / "in", rows, group)
        source = FileSource.parquet(
            folder, type_info=Types.TUPLE([Types.STRING(), Types.LONG()]), columns=["user", "n"]
        )
        assert read_cut(source, cuts, batch_size) == values


def test_parquet_gives_rows_or_tuples_of_the_declared_columns(tmp_path: Path) -> None:
    values = [value for file in range(3) for value in write_parquet(tmp_path / f"in/{file}", 7, 2, file * 7)]
    found = read_all(FileSource.parquet(str(tmp_path / "in"), type_info=ROW))
    assert all(isinstance(row, Row) for row in found)
    assert [(row.user, row.n) for row in found] == values
    tuples = Types.TUPLE([Types.LONG(), Types.STRING()])
    source = FileSource.parquet(str(tmp_path / "in"), type_info=tuples, columns=["n", "user"])
    assert read_all(source) == [(n, user) for user, n in values]


def test_batches_are_the_same_whatever_a_reader_has_read_before(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in", 50_000, 20_000)
    pq.write_table(pa.table({"user": [f"u{n}" for n in range(30_000)], "n": range(30_000)}), tmp_path / "unlike")
    pairs = Types.TUPLE([Types.STRING(), Types.LONG()])
    used, ranges = FileSource.parquet(str(tmp_path), type_info=pairs, columns=["user", "n"]), []
    reading = SplitReading(used)
    for split in reading.enumerator.discover(()):
        ranges.append(SplitRange(split, 100, reading.enumerator.end_of(split, 0)[0], True))
    reader = used.create_reader()
    both = [[batch.values for wanted in ranges for batch in reader.read(wanted, 7000)] for _ in range(2)]
    fresh = [batch.values for wanted in ranges for batch in used.create_reader().read(wanted, 7000)]
    assert both == [fresh, fresh]


def test_an_epoch_ends_with_a_row_group_unless_that_would_be_far_too_early(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in", 100, 30)
    reading = SplitReading(FileSource.parquet(str(tmp_path), type_info=ROW), SourceLimits(max_records=50))
    assert [(r.start, r.stop) for (r,) in reading.run().ranges] == [(0, 30), (30, 60), (60, 100)]
    exact = SplitReading(FileSource.parquet(str(tmp_path), type_info=ROW), SourceLimits(max_records=20)).run()
    assert [len(epoch) for epoch in exact.epochs] == [20, 10, 20, 10, 20, 20]


def test_what_was_read_of_a_parquet_file_is_not_kept_while_it_is_open(tmp_path: Path) -> None:
    schema = pa.schema({"text": pa.string()})
    with pq.ParquetWriter(tmp_path / "long.parquet", schema) as writer:
        for group in range(8):
            # does not compress
            texts = [os.urandom(10_000).hex() for _ in range(100 + group)]
            writer.write_table(pa.table({"text": texts}, schema))
    source = FileSource.parquet(str(tmp_path), type_info=Types.ROW_NAMED(["text"], [Types.STRING()]))
    (split,) = source.create_enumerator(()).discover(())
    reader, before, held = source.create_reader(), pa.total_allocated_bytes(), []
    for begin, end in ((0, 300), (300, 700)):
        ranges = [SplitRange(split, begin, end)]
        reader.open(ranges, 10_000)
        assert sum(len(batch.values) for batch in reader.read(ranges[0], 10_000)) == end - begin
        held.append(pa.total_allocated_bytes() - before)
    # a row group has 2 MB; the file of 16 MB is still open
    assert max(held) < 4_000_000, held
    reader.close()


def test_long_rows_are_taken_and_handed_on_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "READ_BYTES", 10_000)
    pq.write_table(pa.table({"user": [f"{n:0100}" for n in range(1000)], "n": range(1000)}), tmp_path / "in")
    source = FileSource.parquet(str(tmp_path), type_info=ROW)
    reading, reader = SplitReading(source), source.create_reader()
    (split,) = reading.enumerator.discover(())
    sizes = [len(batch.values) for batch in reader.read(SplitRange(split, 0, 1000), 10_000)]
    assert sum(sizes) == 1000 and max(sizes) <= 100


def test_an_epoch_of_rows_is_bounded_by_the_bytes_of_the_declared_columns(tmp_path: Path) -> None:
    rows = 1000
    pq.write_table(
        pa.table({"user": [os.urandom(500).hex() for _ in range(rows)], "n": range(rows)}),
        tmp_path / "in", use_dictionary=False,
    )  # fmt: skip
    both = SplitReading(FileSource.parquet(str(tmp_path), type_info=ROW), SourceLimits(max_bytes=100_000)).run()
    assert all(95 <= len(epoch) <= 105 for epoch in both.epochs[:-1])
    number = FileSource.parquet(str(tmp_path), type_info=Types.ROW_NAMED(["n"], [Types.LONG()]))
    assert len(SplitReading(number, SourceLimits(max_bytes=100_000)).run().epochs) == 1


def test_a_declared_column_that_is_not_there_is_an_error_and_not_null(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in", 2, 2)
    source = FileSource.parquet(str(tmp_path), type_info=Types.ROW_NAMED(["user", "m"], [Types.STRING(), Types.LONG()]))
    with pytest.raises(ProgramError, match=f"'m' is not in the file.*{tmp_path}/in.*n, other, user"):
        read_all(source)
    reading = SplitReading(source)
    (split,) = reading.enumerator.discover(())
    with pytest.raises(ProgramError, match="'m' is not in the file"):
        reading.read([SplitRange(split, 0, 2)])


def test_a_file_that_is_not_parquet_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(MalformedRecordError, match=r"damaged.*broken\.parquet"):
        read_all(FileSource.parquet(str(tmp_path), type_info=ROW))


def pairs_of(folder: Path) -> FileSource:
    return FileSource.parquet(str(folder), type_info=Types.TUPLE([Types.STRING(), Types.LONG()]), columns=["user", "n"])


def planned(
    source: FileSource, parallelism: int, limits: SourceLimits, after_first: Callable[[], None] = lambda: None
) -> list[int]:
    """The number of rows of each epoch until the source ends. ``after_first`` is called when the first is planned."""
    enumerator, store, progress = source.create_enumerator(()), SegmentsInMemory(), SourceProgress()
    planner = EpochPlanner(source, enumerator, parallelism, limits, store)
    epochs = []
    while not (progress.all_assigned and not progress.open):
        planner.discover(progress, len(epochs))
        start, progress = progress, planner.next(progress, len(epochs))
        ranges = [one for subtask in ranges_between(start, progress, store, parallelism) for one in subtask]
        epochs.append(sum((one.stop or 0) - one.start for one in ranges))
        if len(epochs) == 1:
            after_first()
    enumerator.close()
    return epochs


def test_footers_are_read_at_the_same_time_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2 * LOOKING_THREADS):
        write_parquet(tmp_path / f"{number:03}", 3, 2)
    at_once, unchanged = threading.Barrier(LOOKING_THREADS), ParquetFileEnumerator.look_at
    looked_at: list[str] = []

    def look_at(self: ParquetFileEnumerator, split: SourceSplit) -> ParquetFacts:
        looked_at.append(split.id)
        # broken, if they come one after the other
        at_once.wait(60)
        return unchanged(self, split)

    monkeypatch.setattr(ParquetFileEnumerator, "look_at", look_at)
    assert planned(pairs_of(tmp_path), 4, SourceLimits(max_records=20)) == [20] * 9 + [12]
    assert sorted(looked_at) == sorted(map(str, tmp_path.iterdir()))


def test_file_that_was_damaged_when_it_was_expected_is_read_again_when_its_turn_comes(tmp_path: Path) -> None:
    last = tmp_path / "2"
    for number in range(3):
        write_parquet(tmp_path / str(number), 3, 2)
        os.utime(tmp_path / str(number), ns=(number, number))
    whole = last.read_bytes()

    def write(content: bytes) -> None:
        last.write_bytes(content)
        os.utime(last, ns=(2, 2))

    write(b"x" * len(whole))
    assert planned(pairs_of(tmp_path), 1, SourceLimits(max_records=3), lambda: write(whole)) == [3, 3, 3]
    write(b"x" * len(whole))
    with pytest.raises(MalformedRecordError, match=f"damaged.*{last}"):
        planned(pairs_of(tmp_path), 1, SourceLimits(max_records=3))
