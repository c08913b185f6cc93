"""Where records go: every partitioner, key groups as in Flink, and keys that cannot be keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.errors import InvalidKeyError, ProgramError, TypeMismatchError
from flinkish.runtime.exchange.keys import (
    KeyCache,
    TypedKeySelector,
    default_max_parallelism,
    key_group_of,
    key_groups_of,
    subtask_of,
)
from flinkish.runtime.exchange.partitioners import (
    BroadcastPartitioner,
    Bucket,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    Sender,
    ShufflePartitioner,
    reachable,
)
from tests.support.profiles import examples


def identity(value: Any) -> Any:
    return value


def spread(
    partitioner: Partitioner, batches: list[list[Any]], sender: Sender, timestamped: bool = True
) -> list[list[Any]]:
    """The values per subtask; their timestamps must have gone the same way."""
    buckets = [Bucket() for _ in range(sender.target_parallelism)]
    bound = partitioner.bind(sender)
    serial = 0
    stamps: dict[int, Any] = {}
    for batch in batches:
        times = list(range(serial, serial + len(batch)))
        serial += len(batch)
        stamps |= dict(zip(times, batch))
        bound(list(batch), times if timestamped else None, buckets)
    if timestamped:
        for bucket in buckets:
            assert [stamps[time] for time in bucket.timestamps] == bucket.values
            assert bucket.timestamps == sorted(bucket.timestamps)
    return [bucket.values for bucket in buckets]


def sender(subtask: int = 0, parallelism: int = 1, subtasks: int = 3) -> Sender:
    return Sender(subtask, parallelism, subtasks, "operator 'x' (uid x)")


ALL: list[Partitioner] = [
    ForwardPartitioner(),
    GlobalPartitioner(),
    RebalancePartitioner(),
    RescalePartitioner(),
    ShufflePartitioner(),
    KeyGroupPartitioner(identity, 3),
    CustomPartitioner(lambda key, count: key % count, identity),
]
batches = st.lists(st.lists(st.integers(0, 1000), max_size=8), max_size=8)


@settings(max_examples=examples(75))
@given(st.sampled_from(ALL), batches, st.booleans(), st.integers(0, 2))
def test_each_record_goes_to_exactly_one_subtask_in_its_order(
    partitioner: Partitioner, given_batches: list[list[int]], timestamped: bool, subtask: int
) -> None:
    subtasks = spread(partitioner, given_batches, sender(subtask, 3), timestamped)
    sent = [value for batch in given_batches for value in batch]
    assert Counter(value for sent_to in subtasks for value in sent_to) == Counter(sent)
    again = spread(partitioner, given_batches, sender(subtask, 3), timestamped)
    assert subtasks == again, "a replay must do the same"


@settings(max_examples=examples(50))
@given(batches)
def test_broadcast_sends_everything_to_everybody(given_batches: list[list[int]]) -> None:
    sent = [value for batch in given_batches for value in batch]
    assert spread(BroadcastPartitioner(), given_batches, sender()) == [sent] * 3


@settings(max_examples=examples(50))
@given(batches, st.integers(1, 5), st.integers(0, 4))
def test_rebalance_goes_round_whatever_the_batches(given_batches: list[list[int]], subtasks: int, subtask: int) -> None:
    sent = [value for batch in given_batches for value in batch]
    found = spread(RebalancePartitioner(), given_batches, sender(subtask, 5, subtasks))
    for offset in range(subtasks):
        assert found[(subtask + offset) % subtasks] == sent[offset::subtasks]


def test_forward_and_global_go_to_one_subtask() -> None:
    assert spread(ForwardPartitioner(), [[1], [2]], sender(1, 3)) == [[], [1, 2], []]
    assert spread(GlobalPartitioner(), [[1], [2]], sender(1, 3)) == [[1, 2], [], []]


@settings(max_examples=examples(75))
@given(st.integers(1, 9), st.integers(1, 9))
def test_rescale_reaches_every_receiver_and_each_sender_only_its_neighbours(senders: int, receivers: int) -> None:
    reached = [list(reachable(RescalePartitioner(), sender(s, senders, receivers))) for s in range(senders)]
    assert {index for indices in reached for index in indices} == set(range(receivers))
    assert all(reached)
    for indices in reached:
        assert indices == list(range(indices[0], indices[0] + len(indices)))
    if senders <= receivers:
        assert sum(map(len, reached)) == receivers


def test_shuffle_reaches_all_and_depends_on_the_sender() -> None:
    one, other = (spread(ShufflePartitioner(), [list(range(300))], sender(subtask, 2)) for subtask in (0, 1))
    assert min(map(len, one)) > 60
    assert one != other


def test_keys_go_to_the_subtask_that_owns_their_key_group() -> None:
    words = [f"word-{i}" for i in range(200)]
    subtasks = spread(KeyGroupPartitioner(identity, 12), [words], sender(subtasks=3))
    for subtask, values in enumerate(subtasks):
        assert all(key_group_of(value, 12) in key_groups_of(subtask, 3, 12) for value in values)


def test_a_working_form_can_serve_other_buckets() -> None:
    bound = KeyGroupPartitioner(identity, 3).bind(sender())
    for _ in range(2):
        buckets = [Bucket() for _ in range(3)]
        bound(list(range(10)), None, buckets)
        assert sum(len(bucket.values) for bucket in buckets) == 10


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ({1}, "type set cannot be hashed"),
        ({}, "type dict"),
        ([{}], "type list cannot be hashed"),
        (("a", [{1}]), "type tuple"),
        (float("nan"), "NaN"),
        ([float("nan")], "NaN"),
    ],
)
def test_what_cannot_be_a_key_is_an_error_that_names_the_sender_and_key_by(key: Any, says: str) -> None:
    with pytest.raises(InvalidKeyError, match=rf"{says}.*operator 'x'.*, key selector .*<lambda> \(.*\) of key_by\(\)"):
        spread(KeyGroupPartitioner(lambda value: key if value == 2 else value, 3), [[1, 2, 3]], sender())


def test_a_key_that_is_not_of_its_declared_type_is_an_error_that_names_the_sender_and_key_by() -> None:
    selector = TypedKeySelector(lambda value: str(value), Types.INT())
    with pytest.raises(TypeMismatchError, match=r"the value '1' of .*operator 'x'.*<lambda> \(.*\) of key_by\(\)"):
        spread(KeyGroupPartitioner(selector, 3), [[1, 2, 3]], sender())


@pytest.mark.parametrize("timestamped", [True, False])
def test_a_list_goes_where_the_tuple_of_its_elements_goes_also_among_other_keys(timestamped: bool) -> None:
    keys: list[Any] = ["a", 1, [1, 2], ("b", [3, [4]]), "c", [], [5], "a", [1, 2]]
    tuples: list[Any] = ["a", 1, (1, 2), ("b", (3, (4,))), "c", (), (5,), "a", (1, 2)]
    values = list(range(len(keys)))
    of_lists = spread(KeyGroupPartitioner(lambda value: keys[value], 3), [values, values], sender(), timestamped)
    of_tuples = spread(KeyGroupPartitioner(lambda value: tuples[value], 3), [values, values], sender(), timestamped)
    assert of_lists == of_tuples


@pytest.mark.parametrize("timestamped", [True, False])
def test_a_selector_that_raises_stop_iteration_does_not_lose_the_rest_of_the_batch(timestamped: bool) -> None:
    with pytest.raises(ProgramError, match=r"raised StopIteration for \[\].*operator 'x'"):
        spread(KeyGroupPartitioner(lambda value: next(iter(value)), 3), [[[1], [], [2]]], sender(), timestamped)


@pytest.mark.parametrize("error", [TypeError("mine"), ValueError("mine"), KeyError("mine")])
def test_the_selectors_own_errors_stay_what_they_are(error: Exception) -> None:
    def select(value: int) -> int:
        if value == 2:
            raise error
        return value

    with pytest.raises(type(error), match="mine") as caught:
        spread(KeyGroupPartitioner(select, 3), [[1, 2]], sender())
    assert caught.value is error


def test_a_users_partitioner_may_return_a_number_of_numpy() -> None:
    result = spread(CustomPartitioner(lambda key, count: np.int64(key % count), identity), [[1, 5]], sender())
    assert result == spread(CustomPartitioner(lambda key, count: key % count, identity), [[1, 5]], sender())


@pytest.mark.parametrize("target", [-1, 3, None, "1", 1.0, np.int64(3)])
def test_a_users_partitioner_must_name_a_subtask(target: Any) -> None:
    with pytest.raises(ProgramError, match="the partitioner returned.*operator 'x'.*from 0 to 2"):
        spread(CustomPartitioner(lambda key, count: target, identity), [[1]], sender())


@settings(max_examples=examples(100))
@given(st.integers(1, 200).flatmap(lambda p: st.tuples(st.just(p), st.integers(p, 1000))))
def test_key_groups_are_placed_by_flinks_formulas(sizes: tuple[int, int]) -> None:
    parallelism, highest = sizes
    seen = []
    for subtask in range(parallelism):
        # KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex, whose end is inclusive
        start = (subtask * highest + parallelism - 1) // parallelism
        end = ((subtask + 1) * highest - 1) // parallelism
        groups = key_groups_of(subtask, parallelism, highest)
        assert groups == range(start, end + 1)
        # computeOperatorIndexForKeyGroup
        assert all(subtask_of(group, parallelism, highest) == subtask for group in groups)
        seen += groups
    assert seen == list(range(highest))


@given(st.integers(1, 5000))
def test_the_default_max_parallelism_has_key_groups_for_all_subtasks(parallelism: int) -> None:
    highest = default_max_parallelism(parallelism)
    assert highest >= parallelism
    assert 128 <= highest <= 32_768
    assert highest == 128 or highest // 2 < parallelism + parallelism // 2 <= highest


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 50)), st.integers(1, 8))
def test_a_bounded_cache_gives_the_same_places(keys: list[int], limit: int) -> None:
    cache = KeyCache(3, 7, lambda subtask: subtask * 10, limit)
    for key in keys:
        assert cache[key] == subtask_of(key_group_of(key, 7), 3, 7) * 10
        assert len(cache) <= limit


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.integers(0, 300), max_size=250), max_size=6), st.integers(1, 260), st.booleans())
def test_a_cache_places_whole_batches_like_single_keys(batches: list[list[int]], limit: int, texts: bool) -> None:
    cache = KeyCache(3, 7, lambda subtask: subtask * 10, limit)
    for numbers in batches:
        keys = [f"key {number}" if texts else number for number in numbers]
        assert cache.places(keys) == [subtask_of(key_group_of(key, 7), 3, 7) * 10 for key in keys]
        assert len(cache) <= limit


@pytest.mark.parametrize(("wrong", "error"), [([1], TypeError), (float("nan"), InvalidKeyError)])
def test_a_batch_with_a_wrong_key_is_refused_wherever_it_stands(wrong: Any, error: type[Exception]) -> None:
    for place in (0, 50, 199):
        keys: list[Any] = [f"key {number}" for number in range(200)]
        keys[place] = wrong
        with pytest.raises(error):
            KeyCache(3, 7, lambda subtask: subtask).places(keys)
