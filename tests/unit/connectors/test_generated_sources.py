"""Collections, sequences and generators: each record once, in every way to cut them into splits and ticks."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.connectors.collection import CollectionSource
from flinkish.connectors.data_generator import DataGeneratorSource
from flinkish.connectors.number_sequence import NumberSequenceSource
from flinkish.core.source import GeneratedSource
from flinkish.errors import ProgramError


def read_all(source: GeneratedSource, max_records: int) -> list[list[object]]:
    found = []
    for split in range(source.splits):
        values: list[object] = []
        for tick in range(1000):
            batch = source.read(split, tick, max_records)
            assert len(batch.values) <= max_records
            values += batch.values
            if batch.finished:
                assert source.read(split, tick + 1, max_records) == ([], None, True)
                break
        else:
            raise AssertionError("the split does not end")
        found.append(values)
    return found


def test_a_collection_that_fits_one_tick_is_finished_in_it() -> None:
    assert CollectionSource(["a", "b"]).read(0, 0, 10) == (["a", "b"], None, True)


def test_an_empty_collection_is_finished_at_once() -> None:
    assert CollectionSource([]).read(0, 0, 10) == ([], None, True)


def test_a_collection_is_untyped_unless_a_type_is_declared() -> None:
    assert CollectionSource([1]).produced_type == Types.PICKLED_BYTE_ARRAY()
    assert CollectionSource([1], Types.INT()).produced_type == Types.INT()


@given(st.lists(st.integers(), max_size=30), st.integers(1, 7))
def test_ticks_of_a_collection_give_each_value_once_in_order(values: list[int], max_records: int) -> None:
    assert read_all(CollectionSource(values), max_records) == [values]


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 7), st.integers(1, 9))
def test_a_number_sequence_gives_both_ends_and_each_number_once(start: int, more: int, splits: int, size: int) -> None:
    parts = read_all(NumberSequenceSource(start, start + more, splits), size)
    assert sum(parts, []) == list(range(start, start + more + 1))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_number_sequence_cannot_end_before_it_starts() -> None:
    with pytest.raises(ProgramError, match="from 2 to 1 is empty"):
        NumberSequenceSource(2, 1)


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 9), st.one_of(st.none(), st.integers(1, 20)))
def test_a_generator_calls_the_function_once_per_index(count: int, splits: int, size: int, rate: int | None) -> None:
    source = DataGeneratorSource(lambda i: i, count, records_per_epoch=rate, splits=splits)
    parts = read_all(source, size)
    assert sorted(sum(parts, [])) == list(range(count))
    assert all(index % splits == split for split, part in enumerate(parts) for index in part)  # type: ignore[operator]


def test_a_rate_is_over_all_splits_together() -> None:
    source = DataGeneratorSource(lambda i: i, records_per_epoch=5, splits=2)
    assert [source.read(split, tick, 100).values for tick in range(2) for split in range(2)] == [
        [0, 2, 4], [1, 3], [6, 8], [5, 7, 9],
    ]  # fmt: skip
    assert not source.bounded
    assert not source.read(0, 10**6, 100).finished


def test_a_list_function_gets_ranges_and_must_return_as_many_values() -> None:
    source = DataGeneratorSource(lambda indices: [i * i for i in indices], 5, of_list=True)
    assert source.read(0, 0, 10) == ([0, 1, 4, 9, 16], None, True)
    with pytest.raises(ProgramError, match="1 values for 5 indices"):
        DataGeneratorSource(lambda indices: [0], 5, of_list=True).read(0, 0, 10)


def test_sources_with_other_splits_are_new_sources() -> None:
    assert NumberSequenceSource(1, 4).with_splits(3).splits == 3
    assert DataGeneratorSource(abs, 4, Types.INT()).with_splits(2).read(1, 0, 9).values == [1, 3]


def test_sources_travel() -> None:
    source = pickle.loads(pickle.dumps(NumberSequenceSource(1, 9, 2)))
    assert source.read(1, 0, 9).values == [6, 7, 8, 9]
