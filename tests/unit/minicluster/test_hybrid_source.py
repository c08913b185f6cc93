"""A hybrid source reads its sources one after the other, in any epochs and after any restart, and is never late."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flinkish.checkpoint.plain_tables import positions_in
from flinkish.common import Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.spark import DeltaSource
from flinkish.datastream.connectors.file_system import FileSource
from flinkish.datastream.connectors.hybrid_source import HybridSource
from flinkish.datastream.connectors.number_seq import NumberSequenceSource
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import ProgramError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.progress import decode_position
from flinkish.testing import TestingSink, TestingSource
from tests.support.functions import TimeOf
from tests.support.lettered_source import LetteredSource
from tests.support.profiles import examples

from .programs import bounded, environment, job_of, list_source
from .test_watermark_alignment import Contents, aligned, evenly


def hybrid(first: Any, *others: Any) -> HybridSource:
    builder = HybridSource.builder(first)
    for source in others:
        builder.add_source(source)
    return builder.build()


class FilesOf(LetteredSource):
    """Splits that are read one after the other, of records (split, number, time)."""

    def __init__(self, sizes: dict[str, int], begin_ms: int) -> None:
        super().__init__(sizes)
        self._begin_ms = begin_ms

    def create_reader(self) -> Any:
        return _Timed(super().create_reader(), self._begin_ms)


class _Timed:
    def __init__(self, reader: Any, begin_ms: int) -> None:
        self._reader = reader
        self._begin_ms = begin_ms
        self.open, self.close = reader.open, reader.close

    def read(self, wanted: Any, batch_size: int) -> Any:
        for batch in self._reader.read(wanted, batch_size):
            yield batch._replace(values=[(name, n, self._begin_ms + n) for name, n in batch.values])


def later(parts: list[list[Any]], begin_ms: int) -> TestingSource:
    return list_source(*([(name, n, begin_ms + time) for name, n, time in part] for part in parts))


stages = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(0, 12), min_size=1, max_size=4)), min_size=1, max_size=4
)


@example([(True, [1, 1])], 1, 1, False, False)
@settings(max_examples=examples(60), deadline=None)
@given(stages, st.sampled_from([1, 3, 7, 1000]), st.integers(1, 3), st.booleans(), st.booleans())
def test_all_is_read_in_the_order_of_the_sources_and_nothing_is_late(
    kinds: list[tuple[bool, list[int]]], per_epoch: int, parallelism: int, restart: bool, align: bool
) -> None:
    """Whether splits are read side by side or one after the other, each source is later than the one before."""
    sources: list[Any] = []
    for stage, (together, sizes) in enumerate(kinds):
        begin_ms = 100 * stage
        if together:
            parts = [evenly(f"{stage}", size, 1) for size in sizes]
            sources.append(later(parts, begin_ms))
        else:
            sources.append(FilesOf({f"{stage}{n}": size for n, size in enumerate(sizes)}, begin_ms))
    env, sink, read = environment(parallelism), TestingSink(), TestingSink()
    # several files of a subtask have the same times
    strategy = bounded(50)
    stream = env.from_source(hybrid(*sources), aligned(5, strategy) if align else strategy, "all")
    stream.map(lambda r: r).sink_to(read)
    windows = stream.key_by(lambda r: r[0][:1]).window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    windows.process(Contents()).sink_to(sink)
    job, store, clock = job_of(env, source_batch_size=3), StateStore(), ManualClock()
    cluster = MiniCluster(job, clock, store, per_epoch)
    seen: list[int] = []
    while not store.finished:
        if restart:
            cluster.dispose()
            cluster = MiniCluster(job, clock, store, per_epoch)
        epoch = store.next_epoch
        cluster.run_epoch()
        of_epoch = {value[0][:1] for (_, e), values in read.commits.items() if e == epoch for value in values}
        assert len(of_epoch) <= 1
        seen += map(int, of_epoch)
        assert epoch < 1_000
    assert seen == sorted(seen)
    expected = sum(size for _, sizes in kinds for size in sizes)
    assert len(read.values) == expected
    in_windows = Counter(record for _, _, records in sink.values for record in records)
    assert in_windows == Counter(read.values)
    assert len({(key, start) for key, start, _ in sink.values}) == len(sink.values)


def test_files_and_then_a_stream_without_end_from_a_savepoint_in_each(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("4\n5\n")

    stream = TestingSource.of_splits(["6", "7"], ["8"], type_info=Types.STRING())
    source = hybrid(FileSource.text(str(tmp_path)), stream)
    assert not source.bounded and source.produced_type == Types.STRING()
    env, sink = environment(1), TestingSink()
    env.add_source(source).sink_to(sink)
    job, text, uid = job_of(env), None, job_of(env).vertices[0].head.uid
    for _ in range(10):
        # each epoch in a new job, which begins with the position of the last one
        store = StateStore()
        store.positions = {} if text is None else {uid: decode_position(text, uid, store.segments)}
        cluster = MiniCluster(job, ManualClock(), store, 2)
        before = dict(sink.commits)
        sink.commits.clear()
        cluster.run_epoch()
        sink.commits = {**before, (0, len(before)): sink.values}
        text = positions_in(job, store)[uid]
    assert sink.values[:5] == ["1", "2", "3", "4", "5"]
    assert sorted(sink.values[5:]) == ["6", "7", "8"]


def test_what_cannot_be_chained_is_refused() -> None:
    endless = list_source([1], endless=True)
    with pytest.raises(ProgramError, match="source 1 has no end"):
        HybridSource.builder(endless).add_source(list_source([2]))
    with pytest.raises(ProgramError, match=r"source 2 has records of type .*those before of type"):
        HybridSource.builder(NumberSequenceSource(1, 2)).add_source(list_source([2]))
    with pytest.raises(ProgramError, match="DeltaSource is read by Spark"):
        HybridSource.builder(DeltaSource("/nowhere", Types.ROW([Types.LONG()]), bounded=True))
    with pytest.raises(ProgramError, match="a part of another one"):
        HybridSource.builder(hybrid(list_source([1]), list_source([2])))
    with pytest.raises(TypeError, match="expected a Source"):
        HybridSource.builder([1, 2])  # type: ignore[arg-type]


def test_a_number_sequence_goes_on_with_the_next_one() -> None:
    env, sink = environment(2), TestingSink()
    chain = hybrid(NumberSequenceSource(1, 5), NumberSequenceSource(6, 9, splits=3))
    env.from_source(
        chain, WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(int)), "n"
    ).sink_to(sink)
    MiniCluster(job_of(env), ManualClock(), StateStore(), 3).run()
    assert sorted(sink.values) == list(range(1, 10))
