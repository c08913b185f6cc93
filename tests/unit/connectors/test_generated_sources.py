"""Collections, sequences and generators: each record once, in every way to cut them into splits and epochs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.configuration import Configuration
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import (
    CollectionSource,
    DataGeneratorSource,
    NumberedSplitSource,
    NumberSequenceSource,
    RateLimitedEnumerator,
)
from flinkish.core.source import SourceLimits, SourceSplit
from flinkish.errors import ProgramError, SavepointError
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.query_inputs import plan_runs
from flinkish.spark.plan import PlanOptions
from tests.support.job_descriptors import job_of_levels
from tests.support.split_reading import SplitReading


def same(index: int) -> int:
    return index


def squares(indices: range) -> list[int]:
    return [i * i for i in indices]


def first_only(indices: range) -> list[int]:
    return [0]


def long_texts(index: int) -> str:
    return "x" * 10_000


def faulty(index: int) -> int:
    raise ValueError("no")


def read(source: NumberedSplitSource, max_records: int = 100, batch_size: int = 10) -> list[list[Any]]:
    """The records of each split."""
    reading = SplitReading(source, SourceLimits(max_records=max_records, batch_size=batch_size)).run()
    assert reading.ended
    return [reading.by_split.get(split, []) for split in source.declared_splits()]


def test_a_collection_is_one_split() -> None:
    source = CollectionSource(["a", "b"])
    assert (source.declared_splits(), source.bounded, read(source)) == (("0",), True, [["a", "b"]])
    assert read(CollectionSource([])) == [[]]


def test_a_collection_is_untyped_unless_a_type_is_declared() -> None:
    assert CollectionSource([1]).produced_type == Types.PICKLED_BYTE_ARRAY()
    assert CollectionSource([1], Types.INT()).produced_type == Types.INT()


@settings(deadline=None)
@given(st.lists(st.integers(), max_size=30), st.integers(1, 7), st.integers(1, 5))
def test_epochs_of_a_collection_give_each_value_once_in_order(values: list[int], size: int, batch: int) -> None:
    assert read(CollectionSource(values), size, batch) == [values]


@settings(deadline=None)
@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 7), st.integers(1, 9))
def test_a_number_sequence_gives_both_ends_and_each_number_once(start: int, more: int, splits: int, size: int) -> None:
    parts = read(NumberSequenceSource(start, start + more, splits), size)
    assert sum(parts, []) == list(range(start, start + more + 1))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_number_sequence_cannot_end_before_it_starts() -> None:
    with pytest.raises(ProgramError, match="from 2 to 1 is empty"):
        NumberSequenceSource(2, 1)


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 9), st.one_of(st.none(), st.integers(1, 20)))
def test_a_generator_calls_the_function_once_per_index(count: int, splits: int, size: int, rate: int | None) -> None:
    parts = read(DataGeneratorSource(same, count, records_per_epoch=rate, splits=splits), size)
    assert parts == [list(range(split, count, splits)) for split in range(splits)]


def test_a_rate_is_over_all_splits_together() -> None:
    source = DataGeneratorSource(same, records_per_epoch=5, splits=2)
    reading = SplitReading(source)
    for _ in range(4):
        reading.run_epoch()
    assert reading.epochs == [[0, 2, 4, 1, 3], [6, 8, 5, 7, 9], [10, 12, 14, 11, 13], [16, 18, 15, 17, 19]]
    assert not source.bounded and not reading.ended


def test_a_rate_goes_on_where_an_epoch_was_cut_by_the_engine() -> None:
    source = DataGeneratorSource(same, 20, records_per_epoch=10)
    reading = SplitReading(source, SourceLimits(max_records=6)).run()
    assert [len(epoch) for epoch in reading.epochs] == [6, 4, 6, 4]


def test_an_endless_generator_gives_one_epoch_when_it_is_frozen() -> None:
    for rate, size in ((None, 7), (4, 4)):
        source = DataGeneratorSource(same, records_per_epoch=rate)
        reading = SplitReading(source, SourceLimits(max_records=7))
        reading.enumerator.freeze()
        assert reading.run().epochs == [list(range(size))]
        bounded = SplitReading(DataGeneratorSource(same, 20, records_per_epoch=rate), SourceLimits(max_records=7))
        bounded.enumerator.freeze()
        assert bounded.run().records == list(range(20))


def test_a_frozen_endless_generator_gives_what_an_epoch_may_read_even_if_smaller_epochs_read_it() -> None:
    reading = SplitReading(DataGeneratorSource(same, records_per_epoch=7), SourceLimits(max_records=3))
    reading.enumerator.freeze()
    assert reading.run().epochs == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_list_function_gets_ranges_of_at_most_a_batch_and_must_return_as_many_values() -> None:
    assert read(DataGeneratorSource(squares, 5, of_list=True)) == [[0, 1, 4, 9, 16]]
    assert read(DataGeneratorSource(squares, 5, of_list=True), batch_size=2) == [[0, 1, 4, 9, 16]]
    with pytest.raises(ProgramError, match="1 values for 5 indices"):
        read(DataGeneratorSource(first_only, 5, of_list=True))


def test_the_size_of_records_is_measured_so_that_long_ones_make_small_epochs() -> None:
    limits = SourceLimits(max_bytes=100_500)
    for source in (DataGeneratorSource(long_texts, 30), CollectionSource([long_texts(0)] * 30)):
        assert len(SplitReading(source, limits).run().epochs) >= 3
    assert [len(e) for e in SplitReading(NumberSequenceSource(1, 30), SourceLimits(max_bytes=280)).run().epochs] == [
        10
    ] * 3


def test_a_function_that_fails_does_so_where_the_record_is_made() -> None:
    reading = SplitReading(DataGeneratorSource(faulty, 3))
    ranges = reading.plan()
    with pytest.raises(ValueError, match="no"):
        reading.read(ranges)


def test_sources_with_other_splits_are_new_sources() -> None:
    assert NumberSequenceSource(1, 4).with_splits(3).splits == 3
    assert read(DataGeneratorSource(abs, 4, Types.INT()).with_splits(2)) == [[0, 2], [1, 3]]


def test_a_split_always_belongs_to_the_same_subtask() -> None:
    source = DataGeneratorSource(same, 4, splits=4)
    assert [source.subtask_of(split, 3) for split in source.declared_splits()] == [0, 1, 2, 0]
    assert source.side_by_side


def test_a_restored_source_goes_on_at_its_positions_with_the_programs_size() -> None:
    restored = [SourceSplit(str(split), 0, 5) for split in range(2)]
    source = DataGeneratorSource(same, 14, splits=2)
    reading = SplitReading(source, restored=restored, positions={"0": 5, "1": 4}).run()
    assert reading.by_split == {"0": [10, 12], "1": [9, 11, 13]}


def test_a_savepoint_of_another_number_of_splits_is_refused() -> None:
    with pytest.raises(SavepointError, match="the source has 3 splits and had 2 when the savepoint was taken"):
        DataGeneratorSource(same, 10, splits=3).create_enumerator([SourceSplit("0"), SourceSplit("1")])


@pytest.mark.parametrize(
    "source", [CollectionSource([1, 2, 3]), NumberSequenceSource(5, 9), DataGeneratorSource(same, 10)]
)
def test_a_savepoint_that_leads_before_the_first_record_is_refused(source: NumberedSplitSource) -> None:
    with pytest.raises(SavepointError, match="the split 0 is to go on at record -2"):
        source.create_enumerator([SourceSplit("0", -2, 3)])


def test_sources_travel() -> None:
    assert read(pickle.loads(pickle.dumps(NumberSequenceSource(1, 9, 2))))[1] == [6, 7, 8, 9]


def test_a_rate_gives_each_epoch_what_has_become_due_since_the_last_one() -> None:
    now_s = [100.0]
    source = DataGeneratorSource(same, 50, splits=2, records_per_second=10)
    enumerator = RateLimitedEnumerator(source, 10, lambda: now_s[0])
    reading = SplitReading(source, enumerator=enumerator)
    sizes = []
    for seconds in (0, 0.5, 0, 1, 2.5, 60):
        now_s[0] += seconds
        before = len(reading.records)
        reading.run_epoch()
        sizes.append(len(reading.records) - before)
    # five records a second of each split
    assert sizes == [0, 4, 0, 10, 26, 10]
    assert reading.ended and sorted(reading.records) == list(range(50))
    now_s[0] = 0.0
    at_once = SplitReading(source, enumerator=RateLimitedEnumerator(source, 10, lambda: now_s[0]))
    at_once.enumerator.freeze()
    assert len(at_once.run().records) == 50
    assert isinstance(source.with_splits(3).create_enumerator(()), RateLimitedEnumerator)
    with pytest.raises(ProgramError, match="records_per_second=0"):
        DataGeneratorSource(same, records_per_second=0)


@pytest.mark.parametrize(
    "made",
    [
        lambda: DataGeneratorSource(str, count=1e3),  # type: ignore[arg-type]
        lambda: DataGeneratorSource(str, records_per_second=float("inf")),
        lambda: NumberSequenceSource(1, 1e3),  # type: ignore[arg-type]
    ],
)
def test_numbers_that_no_worker_could_count_with_are_refused_when_the_source_is_made(made: Callable[[], Any]) -> None:
    with pytest.raises(ProgramError, match=r"1000\.0|inf"):
        made()


@pytest.mark.parametrize(
    ("source", "trigger", "input_ended", "takes_what_is_there"),
    [
        (DataGeneratorSource(same, 30), "continuous", False, True),
        (DataGeneratorSource(same, 30, records_per_second=10), "continuous", False, False),
        (DataGeneratorSource(same, 30, records_per_second=10), "continuous", True, True),
        (DataGeneratorSource(same, 30, records_per_second=10), "available-now", False, True),
        (DataGeneratorSource(same), "continuous", False, False),
    ],
    ids=["bounded", "with-a-rate", "with-a-rate-all-read", "available-now", "unbounded"],
)
def test_a_job_waits_for_the_records_of_a_bounded_source_until_they_are_due(
    source: DataGeneratorSource, trigger: str, input_ended: bool, takes_what_is_there: bool
) -> None:
    configuration = Configuration()
    if trigger != "continuous":
        configuration.set_string("execution.trigger", trigger)
    job, settings = job_of_levels({0: ()}), driver_settings(configuration)
    [run] = plan_runs(job, {0: source}, settings, PlanOptions(), end_announced=False, input_ended=input_ended)
    assert run.available_now is takes_what_is_there
