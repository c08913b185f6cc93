"""Which splits an epoch reads, by whom and how far; and that a replay finds the same in the offsets alone."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.configuration import Configuration
from flinkish.core.source import SourceLimits
from flinkish.errors import CorruptStateError, FencedError, SavepointError
from flinkish.jobmanager.job.settings import job_settings
from flinkish.runtime.epoch.planner import StoredEpochTimes
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.operators.source_and_sink import SourceOperatorFactory
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources import split_list
from flinkish.runtime.sources.epoch_planner import EpochPlanner
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.progress import SourceProgress, SourceShare, decode_position, encode_position
from flinkish.runtime.sources.sizer import EpochTimes
from flinkish.runtime.sources.split_list import SegmentFiles, SegmentsInMemory
from tests.support.fences import FallingFence
from tests.support.lettered_source import LetteredSource

Offset = dict[str, Any]


@pytest.mark.parametrize(
    ("settings", "parallelism", "limits"),
    [
        ({}, 1, SourceLimits()),
        ({}, 2, SourceLimits()),
        ({}, 100, SourceLimits(200_000_000, 100 * 128 * 1024 * 1024)),
        ({"max-records-per-source": "7", "max-bytes-per-source": "3 kb"}, 100, SourceLimits(7, 3 * 1024)),
    ],
    ids=["one-subtask", "two-subtasks", "wide", "as-configured"],
)
def test_the_limits_of_an_epoch_grow_with_the_parallelism_unless_they_are_configured(
    settings: dict[str, str], parallelism: int, limits: SourceLimits
) -> None:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(f"flinkish.epoch.{key}", value)
    assert job_settings(configuration).source_limits(parallelism) == limits


@pytest.mark.parametrize(
    ("settings", "target_ms"),
    [
        ({}, 2_000),
        ({"flinkish.epoch.target-duration": "500 ms", "execution.checkpointing.interval": "10 s"}, 500),
        ({"flinkish.epoch.target-duration": "1 min", "execution.checkpointing.interval": "10 s"}, 10_000),
        ({"flinkish.epoch.target-duration": "0 ms"}, 0),
    ],
    ids=["default", "configured", "checkpoint-interval", "off"],
)
def test_an_epoch_is_to_take_no_longer_than_the_checkpoint_interval(settings: dict[str, str], target_ms: int) -> None:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    assert job_settings(configuration).epoch_target_ms == target_ms


def job_of(source: LetteredSource, parallelism: int, limits: SourceLimits | None = None) -> JobDescriptor:
    head = OperatorDescriptor("letters", "Source: letters", SourceOperatorFactory())
    vertex = VertexDescriptor(0, head.name, 0, (head,), parallelism, 4, source=source, bounded=source.bounded)
    settings = JobSettings()
    if limits is not None:
        settings = JobSettings(max_records_per_epoch=limits.max_records, max_bytes_per_epoch=limits.max_bytes)
    return JobDescriptor("00" * 16, "job", (vertex,), (), settings)


def records_of(share: SourceShare) -> list[Any]:
    """What a subtask reads, as its reader would."""
    read = []
    for wanted in share.ranges:
        stop = wanted.split.end if wanted.stop is None else wanted.stop
        assert stop is not None and wanted.start <= stop
        read += [(wanted.split.id, number) for number in range(wanted.start, stop)]
    return read


class Run:
    """Epochs of one source, planned to the end; each is also planned again from its offsets, by another enumerator."""

    def __init__(self, source: LetteredSource, parallelism: int, limits: SourceLimits, most: int = 10_000) -> None:
        self.job, self.store = job_of(source, parallelism, limits), SegmentsInMemory()
        self.parallelism = parallelism
        self.epochs: list[list[list[Any]]] = []
        self.offset: Offset = {}
        self.ended_in: dict[int, int] = {}
        enumerator = self.enumerator()
        for _ in range(most):
            after = enumerator.next_offset(self.offset)
            if after == self.offset:
                return
            self._take(self.offset, json.loads(json.dumps(after)))
            self.offset = after
        raise AssertionError("the source does not end")

    def enumerator(self) -> JobEnumerator:
        return JobEnumerator(self.job, self.store, ManualClock(7))

    def _take(self, start: Offset, end: Offset) -> None:
        shares = self.enumerator().shares(start, end)
        assert [share.subtask for share in shares] == list(range(self.parallelism))
        found: list[list[Any]] = []
        for share in shares:
            found.append(records_of(share))
            if share.ends:
                assert share.subtask not in self.ended_in
                self.ended_in[share.subtask] = len(self.epochs)
            assert share.ended == (self.ended_in.get(share.subtask, 10**9) < len(self.epochs))
        self.epochs.append(found)

    def of_subtask(self, subtask: int) -> list[Any]:
        return [record for epoch in self.epochs for record in epoch[subtask]]


sizes = st.lists(st.integers(0, 40), max_size=20).map(lambda counts: dict(zip(string.ascii_letters, counts)))


@given(sizes, st.booleans(), st.integers(1, 4), st.integers(1, 30), st.integers(1, 60))
def test_each_record_is_read_once_and_in_order_within_the_bounds_of_each_epoch(
    counts: dict[str, int], together: bool, parallelism: int, records: int, size: int
) -> None:
    limits = SourceLimits(max_records=records, max_bytes=size)
    run = Run(LetteredSource(counts, together, record_bytes=2.0), parallelism, limits)
    everything = [record for subtask in range(parallelism) for record in run.of_subtask(subtask)]
    assert sorted(everything) == sorted((name, n) for name, count in counts.items() for n in range(count))
    for subtask in range(parallelism):
        for name in counts:
            numbers = [n for split, n in run.of_subtask(subtask) if split == name]
            assert numbers == sorted(numbers)
            # nobody else reads any of it
            assert len(numbers) in (0, counts[name])
    for epoch in run.epochs:
        read = sum(map(len, epoch))
        assert read <= records
        # one record for each subtask where not even one fits
        assert 2 * read <= max(size, 2 * parallelism if not together else 2)
    assert set(run.ended_in) == set(range(parallelism))


@given(sizes, st.integers(1, 3), st.integers(1, 30))
def test_splits_that_are_read_one_after_the_other_are_begun_in_order_and_one_at_a_time(
    counts: dict[str, int], parallelism: int, records: int
) -> None:
    run = Run(LetteredSource(counts), parallelism, SourceLimits(max_records=records))
    begun: dict[str, int] = {}
    for number, epoch in enumerate(run.epochs):
        for read in epoch:
            for split, _ in read:
                begun.setdefault(split, number)
    in_order = [name for name, count in counts.items() if count]
    assert [begun[name] for name in in_order] == sorted(begun[name] for name in in_order)
    for subtask in range(parallelism):
        names = [split for split, _ in run.of_subtask(subtask)]
        assert names == sorted(names, key=names.index)


def test_two_files_are_read_side_by_side_by_two_subtasks_and_one_after_the_other_by_one() -> None:
    source, limits = LetteredSource({"a": 4, "b": 4}), SourceLimits(max_records=2)
    by_two = Run(source, 2, limits)
    assert by_two.epochs == [[[("a", n)], [("b", n)]] for n in range(4)]
    by_one = Run(source, 1, limits)
    assert [epoch[0] for epoch in by_one.epochs] == [
        [("a", 0), ("a", 1)],
        [("a", 2), ("a", 3)],
        [("b", 0), ("b", 1)],
        [("b", 2), ("b", 3)],
    ]


def test_a_subtask_takes_as_many_small_splits_in_one_epoch_as_fit() -> None:
    run = Run(LetteredSource({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}), 2, SourceLimits(max_records=100))
    assert len(run.epochs) == 1
    assert [len(read) for read in run.epochs[0]] in ([3, 2], [2, 3])


def test_splits_that_are_read_side_by_side_give_in_proportion_to_what_they_have() -> None:
    run = Run(LetteredSource({"a": 80, "b": 20}, together=True), 1, SourceLimits(max_records=10))
    first = run.epochs[0][0]
    assert [split for split, _ in first] == ["a"] * 8 + ["b"] * 2
    assert len(run.epochs) == 10


def test_subtasks_without_a_split_end_in_the_first_epoch_and_an_empty_source_ends_at_once() -> None:
    run = Run(LetteredSource({"a": 3}), 3, SourceLimits(max_records=2))
    assert [run.ended_in[subtask] for subtask in (0, 1, 2)] == [1, 0, 0]
    assert Run(LetteredSource({}), 2, SourceLimits()).ended_in == {0: 0, 1: 0}


def test_an_unbounded_source_without_anything_new_has_no_epoch() -> None:
    source = LetteredSource({"a": 3}, unbounded=True)
    run = Run(source, 1, SourceLimits())
    assert run.epochs == [[[("a", 0), ("a", 1), ("a", 2)]]]
    assert run.ended_in == {}
    again = run.enumerator().next_offset(run.offset, forced=True)
    assert again["epoch"] == run.offset["epoch"] + 1
    assert all(not share.ranges for share in run.enumerator().shares(run.offset, again))


def test_many_splits_leave_the_offset_and_the_list_of_them_is_compacted(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(split_list, "MAX_TAIL", 4)
    monkeypatch.setattr(split_list, "MAX_SEGMENTS", 3)
    source, store = LetteredSource({}, unbounded=True), SegmentFiles(str(tmp_path))
    job = job_of(source, 2)
    read: list[Any] = []
    enumerator = JobEnumerator(job, store, ManualClock())
    offset: Offset = {}
    # the source that the enumerator has is that of the job
    found = job.vertices[0].source
    assert isinstance(found, LetteredSource)
    for number in range(60):
        found.sizes[f"s{number}"] = 1
        found.sizes.update({f"s{number}-{more}": 0 for more in range(number % 3)})
        after = enumerator.next_offset(offset)
        fresh = JobEnumerator(job, SegmentFiles(str(tmp_path)), ManualClock())
        read += [r.split.id for share in fresh.shares(offset, after) for r in share.ranges if r.split.end]
        offset = after
        stands = offset["sources"]["letters"]
        assert len(stands["segments"]) <= 3
        assert len(stands["tail"]) <= 4
    assert read == [f"s{number}" for number in range(60)]
    assert len(list((tmp_path / "splits").iterdir())) > 6


def test_segments_are_deleted_long_after_the_last_offset_that_refers_to_them(tmp_path: Any) -> None:
    fence, kept = FallingFence(passes=1), split_list.KEPT_EPOCHS

    def there() -> set[str]:
        return {path.stem for path in (tmp_path / "splits").iterdir()}

    left, old = (
        SegmentFiles(str(tmp_path)).write([["of an earlier driver"]]),
        SegmentFiles(str(tmp_path)).write([["a"]]),
    )
    store = SegmentFiles(str(tmp_path), fence)
    store.sweep({old}, 10)
    new = store.write([["a"], ["b"]])
    store.sweep({new}, 500)
    store.sweep({new}, 10 + kept - 1)
    assert there() == {left, old, new}
    store.sweep({new}, 10 + kept)
    assert there() == {old, new}
    with pytest.raises(FencedError):
        store.sweep({new}, 500 + kept)
    assert there() == {old, new}
    fence.passes = 9
    store.sweep({new}, 500 + kept)
    assert there() == {new}


@given(sizes, st.booleans(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 20), st.integers(0, 5))
def test_a_savepoint_goes_on_behind_what_was_read_with_another_parallelism(
    counts: dict[str, int], together: bool, before: int, after: int, records: int, epochs: int
) -> None:
    source, limits = LetteredSource(counts, together), SourceLimits(max_records=records)
    whole = Run(source, before, limits)
    store = SegmentsInMemory()
    first, offset = whole.enumerator(), dict[str, Any]()
    for _ in range(min(epochs, len(whole.epochs))):
        offset = first.next_offset(offset)
    old = [r for epoch in whole.epochs[: min(epochs, len(whole.epochs))] for read in epoch for r in read]
    position = encode_position(first.progress(offset, "letters"), whole.store)
    restored = {"letters": decode_position(position, "letters", store)}
    second = JobEnumerator(job_of(source, after, limits), store, ManualClock(), restored)
    new: list[Any] = []
    ended: set[int] = set()
    stands: Offset = {}
    while len(ended) < after:
        end = second.next_offset(stands)
        assert end != stands
        for share in second.shares(stands, end):
            ended |= {share.subtask} if share.ends else set()
            new += records_of(share)
        stands = end
    assert second.next_offset(stands) == stands
    assert sorted(old + new) == sorted((name, n) for name, count in counts.items() for n in range(count))


@given(sizes, st.data(), st.booleans(), st.integers(1, 3), st.integers(1, 20), st.integers(0, 5), st.booleans())
def test_where_a_split_ends_now_is_where_it_is_read_to_whatever_its_end_was_when_it_was_found(
    counts: dict[str, int], data: Any, together: bool, parallelism: int, records: int, epochs: int, savepoint: bool
) -> None:
    limits = SourceLimits(max_records=records)
    first = Run(LetteredSource(counts, together), parallelism, limits)
    planner, offset = first.enumerator(), dict[str, Any]()
    for _ in range(min(epochs, len(first.epochs))):
        offset = planner.next_offset(offset)
    read = [r for epoch in first.epochs[: min(epochs, len(first.epochs))] for part in epoch for r in part]
    first_part = [split for split, _ in read]
    progress = planner.progress(offset, "letters")
    ended = {name for index, name in enumerate(counts) if index < progress.next} - {
        list(counts)[split.number] for split in progress.open
    }
    changed = {name: data.draw(st.integers(0, 40)) for name in counts}
    restored = {}
    store = first.store
    if savepoint:
        store, position = SegmentsInMemory(), encode_position(progress, first.store)
        restored, offset = {"letters": decode_position(position, "letters", store)}, {}
    job = job_of(LetteredSource(changed, together), parallelism, limits)
    second = JobEnumerator(job, store, ManualClock(), restored)
    for _ in range(10_000):
        end = second.next_offset(offset)
        if end == offset:
            break
        replayed = JobEnumerator(job, store, ManualClock(), restored)
        for share in replayed.shares(offset, json.loads(json.dumps(end))):
            read += records_of(share)
        offset = end
    for name, count in counts.items():
        numbers = [number for split, number in read if split == name]
        expected = count if name in ended else max(changed[name], first_part.count(name))
        assert numbers == list(range(expected))


def sized_job(source: LetteredSource, parallelism: int, most: int | None = None) -> JobDescriptor:
    job = job_of(source, parallelism)
    return replace(job, settings=JobSettings(max_records_per_epoch=most, epoch_target_ms=2_000))


def records_between(enumerator: JobEnumerator, start: Offset, end: Offset) -> int:
    return sum(len(records_of(share)) for share in enumerator.shares(start, end))


@pytest.mark.parametrize("together", [False, True], ids=["one-after-the-other", "side-by-side"])
def test_epochs_are_sized_by_what_the_last_one_has_taken_and_a_replay_reads_the_same(together: bool) -> None:
    job = sized_job(LetteredSource({"a": 300_000, "b": 300_000}, together), 2)
    enumerator, store = JobEnumerator(job, SegmentsInMemory(), ManualClock()), SegmentsInMemory()
    offset: Offset = {}
    times: EpochTimes | None = None
    sizes = []
    for _ in range(5):
        after = json.loads(json.dumps(enumerator.next_offset(offset, times=times)))
        sizes.append(records_between(JobEnumerator(job, store, ManualClock()), offset, after))
        offset = after
        # 10 ms a record, in two subtasks
        times = EpochTimes(200 + 5.0 * sizes[-1], 0, {"letters": 5.0 * sizes[-1]})
    assert sizes == [2, 400, *[pytest.approx(360, abs=2)] * 3]


def test_an_epoch_whose_predecessor_has_left_no_times_is_small() -> None:
    enumerator = JobEnumerator(sized_job(LetteredSource({"a": 10_000}), 1), SegmentsInMemory(), ManualClock())
    first = enumerator.next_offset({})
    second = enumerator.next_offset(first, times=EpochTimes(10, 0, {"letters": 1}))
    assert records_between(enumerator, first, second) == 1_000
    assert records_between(enumerator, second, enumerator.next_offset(second)) == 1
    del second["size"]
    third = enumerator.next_offset(second, times=EpochTimes(10, 0, {"letters": 1}))
    assert records_between(enumerator, second, third) == 1, "the log of a version that did not size epochs"


def test_an_epoch_in_the_place_of_one_that_was_given_up_is_small() -> None:
    job, store = sized_job(LetteredSource({"a": 10_000}), 1), SegmentsInMemory()
    times = EpochTimes(10, 0, {"letters": 1})
    first = JobEnumerator(job, store, ManualClock()).next_offset({})
    second = JobEnumerator(job, store, ManualClock()).next_offset(first, times=times)
    again = JobEnumerator(job, store, ManualClock(), given_up=second)
    small = again.next_offset(first, times=times)
    assert [records_between(again, first, end) for end in (second, small)] == [1_000, 1]
    assert records_between(again, small, again.next_offset(small, times=times)) == 1_000, "the job goes on"


def test_the_configured_number_of_records_stays_the_most_that_an_epoch_reads() -> None:
    enumerator = JobEnumerator(sized_job(LetteredSource({"a": 100}), 1, most=7), SegmentsInMemory(), ManualClock())
    offset, sizes = enumerator.next_offset({}), [1]
    for _ in range(3):
        after = enumerator.next_offset(offset, times=EpochTimes(10, 0, {"letters": 0.001}))
        sizes.append(records_between(enumerator, offset, after))
        offset = after
    assert sizes == [1, 7, 7, 7]


def test_the_times_of_an_epoch_are_there_until_the_next_one_begins(tmp_path: Path) -> None:
    folder, times = str(tmp_path), StoredEpochTimes(EpochTimes(12.5, 2, {"letters": 7.25}))
    assert StoredEpochTimes.read(folder) is None
    StoredEpochTimes.delete(folder)
    times.write(folder)
    assert StoredEpochTimes.read(folder) == times
    (tmp_path / "epoch-times").write_bytes(b'{"duration_ms": 1')
    assert StoredEpochTimes.read(folder) is None, "the driver has died while it was writing"
    StoredEpochTimes.delete(folder)
    assert not list(tmp_path.iterdir())


def test_a_position_that_is_no_position_is_refused() -> None:
    for text in ("", "{}", '{"tick": 3}', '{"complete": true, "ended": [], "splits": [["a"]]}'):
        with pytest.raises(SavepointError, match="position"):
            decode_position(text, "letters", SegmentsInMemory())


def test_an_offset_that_is_not_as_it_was_written_is_damage() -> None:
    whole = SourceProgress().encode()
    for key in whole:
        broken = {name: value for name, value in whole.items() if name != key}
        with pytest.raises(CorruptStateError, match="position of a source"):
            SourceProgress.decode(broken, "job 'job'")


def test_a_list_of_splits_that_is_missing_or_cut_off_is_damage_that_names_the_file(tmp_path: Any) -> None:
    store = SegmentFiles(str(tmp_path))
    name = store.write([["a", 0, 1, None], ["b"]])
    assert SegmentFiles(str(tmp_path)).read(name) == [["a", 0, 1, None], ["b"]]
    path = tmp_path / "splits" / f"{name}.json"
    written = path.read_bytes()
    for bit in range(8 * len(written)):
        data = bytearray(written)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(CorruptStateError) as damage:
            SegmentFiles(str(tmp_path)).read(name)
        assert damage.value.file == str(path)
    path.write_text('{"count": 1, "splits": [["written before there were digests"]]}')
    assert SegmentFiles(str(tmp_path)).read(name) == [["written before there were digests"]]
    path.unlink()
    with pytest.raises(CorruptStateError, match=name):
        SegmentFiles(str(tmp_path)).read(name)


def test_an_offset_is_the_same_text_for_the_same_place() -> None:
    progress = SourceProgress(complete=True)
    assert json.dumps(progress.encode()) == json.dumps(replace(progress).encode())
    assert list(progress.encode()) == sorted(progress.encode())


class _OwnedByLast(LetteredSource):
    """All of its splits are read by the last subtask."""

    def subtask_of(self, split_id: str, parallelism: int) -> int:
        return parallelism - 1


def test_splits_that_are_read_side_by_side_take_turns_and_stay_with_the_subtask_that_has_begun_them() -> None:
    sizes, limits = dict.fromkeys("abcdef", 10), SourceLimits(max_records=6)
    store = SegmentsInMemory()
    by_version = [
        JobEnumerator(job_of(source(sizes, together=True), 3, limits), store, ManualClock(7))
        for source in (_OwnedByLast, LetteredSource)
    ]
    first, turns = (enumerator.next_offset({}) for enumerator in by_version)
    assert [len(share.ranges) for share in by_version[1].shares({}, turns)] == [2, 2, 2]
    assert [len(share.ranges) for share in by_version[0].shares({}, first)] == [0, 0, 6]
    then = by_version[1].next_offset(first)
    assert [len(share.ranges) for share in by_version[1].shares(first, then)] == [0, 0, 6]
    source = LetteredSource(sizes, together=True)
    planner = EpochPlanner(source, source.create_enumerator(()), 3, limits, store)
    progress = SourceProgress.decode(then["sources"]["letters"], "")
    planner.discover(progress, 3)
    assert planner.next(progress, 3, {"a": 0}).held == ((2, "a"),)
