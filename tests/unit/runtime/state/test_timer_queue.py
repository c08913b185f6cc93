"""The timer queue against a list that is searched for the smallest timer each time."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.core.time import TimeDomain
from flinkish.runtime.state import domain_timers
from flinkish.runtime.state.timer_queue import TimerQueue
from tests.support.profiles import examples

EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME

#: in one slot, at the ends of slots, in several, before 1970 and at the ends of time
_times = st.one_of(
    st.integers(0, 6), st.sampled_from([-(2**63), -257, -256, -1, 255, 256, 511, 512, 100_000, 2**63 - 1])
)
_timers = st.tuples(st.sampled_from(TimeDomain), _times, st.sampled_from("abc"), st.sampled_from([None, (0, 10)]))
_actions = st.one_of(
    st.tuples(st.just("register"), _timers),
    st.tuples(st.just("delete"), _timers),
    st.tuples(st.just("register_all"), _timers, st.lists(st.sampled_from("abcd"))),
    st.tuples(st.just("pop"), st.sampled_from(TimeDomain), _times),
    st.tuples(st.just("reload")),
    st.tuples(st.just("count")),
)


class Model:
    """Timers in the order of registration."""

    def __init__(self) -> None:
        self.timers: list[tuple[Any, ...]] = []

    def register(self, timer: tuple[Any, ...]) -> bool:
        if timer in self.timers:
            return False
        self.timers.append(timer)
        return True

    def delete(self, timer: tuple[Any, ...]) -> bool:
        if timer not in self.timers:
            return False
        self.timers.remove(timer)
        return True

    def next(self, domain: TimeDomain) -> int | None:
        return min((timer[1] for timer in self.timers if timer[0] is domain), default=None)

    def pop(self, domain: TimeDomain, upto_ms: int) -> tuple[Any, ...] | None:
        due = [timer for timer in self.timers if timer[0] is domain and timer[1] <= upto_ms]
        if not due:
            return None
        first = min(due, key=lambda timer: timer[1])
        self.timers.remove(first)
        return first[1:]


@settings(max_examples=examples(75), deadline=None)
@given(
    st.lists(_actions, max_size=40),
    st.sampled_from([0, 3, 2_000]),
    st.sampled_from([0, 2, 1_000]),
    st.booleans(),
    st.data(),
)
def test_timers_fire_like_those_of_a_searched_list_whatever_happens_while_they_fire(
    actions: list[Any], crowded: int, noted: int, recording: bool, data: st.DataObject
) -> None:
    with patch.object(domain_timers, "CROWDED_SLOT", crowded), patch.object(domain_timers, "NOTED_TIMES", noted):
        check_against_the_model(TimerQueue(recording=recording), actions, data)


def check_against_the_model(queue: TimerQueue, actions: list[Any], data: st.DataObject) -> None:
    model = Model()

    def change(name: str, timer: tuple[Any, ...]) -> None:
        getattr(queue, name)(*timer)
        getattr(model, name)(timer)

    for action in actions:
        if action[0] in ("register", "delete"):
            change(action[0], action[1])
        elif action[0] == "register_all":
            domain, timestamp_ms, _, namespace = action[1]
            queue.register_all(domain, timestamp_ms, action[2], namespace)
            for key in action[2]:
                model.register((domain, timestamp_ms, key, namespace))
        elif action[0] == "reload":
            queue = reloaded(queue)
        elif action[0] == "count":
            # not after each action, because a slot whose timers are counted notes no more registrations
            assert len(queue) == len(model.timers)
        else:
            fired = 0
            for popped in queue.pop_due(action[1], action[2]):
                assert popped == model.pop(action[1], action[2])
                fired += 1  # noqa: SIM113 - counts what has happened
                if fired < 30 and data.draw(st.booleans()):
                    change(data.draw(st.sampled_from(["register", "delete"])), data.draw(_timers))
                if fired > 60:
                    break
            else:
                assert model.pop(action[1], action[2]) is None
        assert queue.in_memory >= len(model.timers)
        assert_as_large_as_its_timers(queue)
        for domain in TimeDomain:
            first_ms = model.next(domain)
            assert first_ms is None or queue.may_be_due(domain, first_ms)
    assert len(queue) == len(model.timers)


def assert_as_large_as_its_timers(queue: TimerQueue) -> None:
    for domain in TimeDomain:
        timers = queue.domain(domain)
        assert all(slot.at_most() for slot in timers.slots.values())
        assert len(timers.heap) <= max(65, 2 * len(timers.slots) + 1)


def reloaded(queue: TimerQueue) -> TimerQueue:
    again, stored = TimerQueue(recording=queue.domain(TimeDomain.EVENT_TIME).changed is not None), queue.stored()
    if stored is not None:
        again.load(stored)
    assert not again.changed
    return again


def test_a_timer_that_is_registered_again_and_again_takes_no_more_memory() -> None:
    queue = TimerQueue(recording=False)
    for number in range(10_000):
        queue.register(EVENT, 5, "a")
        queue.register(EVENT, 6 + number % 3_000, "b")
    assert queue.in_memory < 10_000
    assert len(queue) == 3_001


def test_a_timer_that_is_registered_again_while_it_fires_fires_again() -> None:
    queue = TimerQueue()
    queue.register(EVENT, 5, "a")
    fired = []
    for timestamp_ms, key, _ in queue.pop_due(EVENT, 10):
        fired.append((timestamp_ms, key))
        if len(fired) < 3:
            queue.register(EVENT, 5, "a")
    assert fired == [(5, "a")] * 3


def test_an_earlier_timer_registered_while_others_fire_comes_next() -> None:
    queue = TimerQueue()
    queue.register_all(EVENT, 5, ["a", "b", "c"])
    fired = []
    for timestamp_ms, key, _ in queue.pop_due(EVENT, 10):
        fired.append((timestamp_ms, key))
        if key == "a":
            queue.register(EVENT, 1, "late")
    assert fired == [(5, "a"), (1, "late"), (5, "b"), (5, "c")]


def test_a_timer_deleted_while_another_of_its_time_fires_does_not_fire() -> None:
    queue = TimerQueue()
    queue.register_all(EVENT, 5, ["a", "b", "c"])
    fired = []
    for _, key, _ in queue.pop_due(EVENT, 10):
        fired.append(key)
        queue.delete(EVENT, 5, "b")
    assert fired == ["a", "c"]


def test_what_is_not_consumed_stays() -> None:
    queue = TimerQueue()
    queue.register_all(EVENT, 5, ["a", "b"])
    next(queue.pop_due(EVENT, 10))
    assert list(queue.pop_due(EVENT, 10)) == [(5, "b", None)]


def test_a_timer_that_has_fired_before_an_earlier_one_came_can_be_registered_again() -> None:
    queue = TimerQueue()
    queue.register_all(EVENT, 5, ["a", "b"])
    fired = []
    for timestamp_ms, key, _ in queue.pop_due(EVENT, 10):
        fired.append((timestamp_ms, key))
        if fired == [(5, "a")]:
            queue.register(EVENT, 1, "late")
        elif key == "late":
            queue.register(EVENT, 5, "a")
            queue.register(EVENT, 5, "b")
    assert fired == [(5, "a"), (1, "late"), (5, "b"), (5, "a")]


def test_timers_that_each_register_another_one_of_the_same_slot_fire_in_order() -> None:
    queue, keys = TimerQueue(), range(10_000)
    queue.register_all(EVENT, 5, keys)
    fired = []
    for timestamp_ms, key, _ in queue.pop_due(EVENT, 1_000):
        fired.append((timestamp_ms, key))
        if timestamp_ms < 200:
            queue.register(EVENT, timestamp_ms + 50, key)
            queue.register(EVENT, timestamp_ms + 50, key)
    assert fired == [(timestamp_ms, key) for timestamp_ms in (5, 55, 105, 155, 205) for key in keys]


def test_timers_that_stand_close_fire_in_order_at_watermarks_that_rise_in_small_steps() -> None:
    queue = TimerQueue()
    for number in range(30_000):
        queue.register(EVENT, number * 7919 % 300, number)
    fired: list[tuple[int, Any]] = []
    for watermark_ms in range(0, 300, 3):
        fired.extend((timestamp_ms, key) for timestamp_ms, key, _ in queue.pop_due(EVENT, watermark_ms))
        assert all(timestamp_ms <= watermark_ms for timestamp_ms, _ in fired[-200:])
        queue.register(EVENT, watermark_ms + 1, "short")
        fired.extend((timestamp_ms, key) for timestamp_ms, key, _ in queue.pop_due(EVENT, watermark_ms + 1))
    fired.extend((timestamp_ms, key) for timestamp_ms, key, _ in queue.pop_due(EVENT, 300))
    assert fired == sorted(fired, key=lambda timer: (timer[0], timer[1] == "short", timer[1]))
    assert len(fired) == 30_100


def test_the_two_domains_do_not_see_each_other() -> None:
    queue = TimerQueue()
    queue.register(EVENT, 5, "a")
    queue.register(PROCESSING, 3, "a")
    assert list(queue.pop_due(PROCESSING, 10)) == [(3, "a", None)]
    assert queue.may_be_due(EVENT, 5) and not queue.may_be_due(PROCESSING, 10)
    assert list(queue.pop_due(EVENT, 5)) == [(5, "a", None)]


def test_a_hundred_thousand_timers_of_one_time_are_popped_one_by_one() -> None:
    queue = TimerQueue()
    queue.register_all(EVENT, 5, range(100_000))
    assert [key for _, key, _ in queue.pop_due(EVENT, 5)] == list(range(100_000))


def test_a_queue_is_as_large_as_its_timers_however_many_were_deleted() -> None:
    """The usual inactivity timer: each record deletes that of its key and registers a later one."""
    queue = TimerQueue()
    for record in range(30_000):
        queue.delete(EVENT, record - 100, record % 100)
        queue.register(EVENT, record, record % 100)
        if record % 1000 == 0:
            queue.forget_changes()
            assert_as_large_as_its_timers(queue)
    assert len(queue) == 100
    assert_as_large_as_its_timers(queue)
    assert [timestamp_ms for timestamp_ms, _, _ in queue.pop_due(EVENT, 30_000)] == list(range(29_900, 30_000))
    assert not queue.may_be_due(EVENT, 30_000)
    assert_as_large_as_its_timers(queue)


def test_only_what_came_or_went_is_reported_as_changed() -> None:
    queue = TimerQueue()
    queue.register(EVENT, 5, "a", "w")
    queue.register(EVENT, 5, "b")
    assert {timer[2:4] for timer in queue.changed_timers()} == {("w", "a"), (None, "b")}
    queue.forget_changes()
    assert not queue.register(EVENT, 5, "b")
    assert not queue.delete(EVENT, 7, "b")
    assert not queue.changed
    list(queue.pop_due(EVENT, 5))
    assert {timer[2:4] for timer in queue.changed_timers()} == {("w", "a"), (None, "b")}
