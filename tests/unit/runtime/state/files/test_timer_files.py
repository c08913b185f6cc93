"""Timers in files against a dict of timers in the order of registration."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.errors import CorruptStateError
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.timer_files import NONE_FIRED, TimerChanges, TimerFiles, TimerQueueName, TimerSets
from flinkish.runtime.stored.pickles import dumps_data
from flinkish.runtime.stored.reader import read_value
from tests.support.profiles import examples
from tests.unit.runtime.state.files.support import encoded, few_hashes, same_value, small_files

QUEUES: list[TimerQueueName] = [("user-timers", "event"), ("window-timers", "processing")]
#: 1, 1.0 and True are one timer
KEYS: list[Any] = [*range(6), 1.0, True, "a"]
TIMESTAMPS = [-(1 << 63) + 1, -5, 0, 10, 20, 30, 1000, (1 << 63) - 1]

_timer = (st.sampled_from(QUEUES), st.sampled_from(TIMESTAMPS), st.sampled_from(KEYS))
work_of_epoch = st.lists(st.tuples(st.sampled_from(["register", "register", "delete"]), *_timer), max_size=12)
epochs = st.lists(
    st.tuples(work_of_epoch, st.sampled_from([None, None, -5, 10, 1000, (1 << 63) - 1]), st.booleans()), max_size=12
)


class TimerModel:
    """queue -> timestamp -> {key: sequence}, and how far each queue has fired."""

    def __init__(self, hashes: int) -> None:
        self.timers: dict[TimerQueueName, dict[int, dict[Any, int]]] = {queue: {} for queue in QUEUES}
        self.fired = dict.fromkeys(QUEUES, NONE_FIRED)
        self._hashes = hashes
        self._sequence = 0
        #: whether the timer was deleted since the last `changes`
        self._touched: dict[tuple[TimerQueueName, int, Any], bool] = {}

    def hashes(self, keys: list[Any]) -> Any:
        return few_hashes(keys, self._hashes)

    def register(self, queue: TimerQueueName, timestamp: int, key: Any) -> None:
        if timestamp <= self.fired[queue]:
            return
        self._sequence += 1
        self.timers[queue].setdefault(timestamp, {}).setdefault(key, self._sequence)
        self._touched.setdefault((queue, timestamp, key), False)

    def delete(self, queue: TimerQueueName, timestamp: int, key: Any) -> None:
        self.timers[queue].get(timestamp, {}).pop(key, None)
        self._touched[queue, timestamp, key] = True

    def fire(self, upto: int) -> None:
        for queue in QUEUES:
            self.fired[queue] = max(self.fired[queue], upto)
            for timestamp in [at for at in self.timers[queue] if at <= upto]:
                del self.timers[queue][timestamp]

    def live(self, queue: TimerQueueName) -> dict[int, list[Any]]:
        return {
            timestamp: sorted(keys, key=keys.__getitem__)
            for timestamp, keys in sorted(self.timers[queue].items())
            if keys
        }

    def changes(self) -> dict[TimerQueueName, TimerChanges]:
        changes: dict[TimerQueueName, TimerChanges] = {}
        for (queue, timestamp, key), deleted in self._touched.items():
            of_queue = changes.setdefault(queue, TimerChanges())
            sequence = self.timers[queue].get(timestamp, {}).get(key)
            timer = [timestamp], self.hashes([key]), [encoded(key)]
            if sequence is not None:
                (of_queue.register_again if deleted else of_queue.register)(*timer, [sequence])
            elif deleted:
                of_queue.delete(*timer)
        self._touched = {}
        return changes


def check(files: TimerFiles, sets: TimerSets, model: TimerModel) -> None:
    for queue in QUEUES:
        fired, live = model.fired[queue], model.live(queue)
        assert files.earliest(sets, queue, fired) == next(iter(live), None)
        for timestamp in TIMESTAMPS:
            if timestamp > fired:
                batches = list(files.at(sets, queue, timestamp, batch_rows=2))
                assert all(len(batch) <= 2 for batch in batches)
                assert [read_value(id_) for batch in batches for id_ in batch] == live.get(timestamp, [])
            there = files.contains(
                sets, queue, fired, [timestamp] * len(KEYS), model.hashes(KEYS), list(map(encoded, KEYS))
            )
            assert there == [key in live.get(timestamp, []) for key in KEYS]
        scanned: dict[int, list[tuple[int, Any]]] = {}
        for batch in files.scan(sets, queue, fired):
            for timestamp, id_, sequence in zip(batch.timestamps_ms, batch.ids, batch.sequences):
                scanned.setdefault(timestamp, []).append((sequence, read_value(id_)))
        assert list(scanned) == list(live)
        assert {at: [key for _, key in sorted(timers, key=lambda t: t[0])] for at, timers in scanned.items()} == live


@settings(max_examples=examples(40), deadline=None)
@given(epochs, st.sampled_from([1, 2, 8]))
def test_timers_in_files_are_those_of_a_dict_and_fire_in_its_order(work: list[Any], hashes: int) -> None:
    with tempfile.TemporaryDirectory() as folder, small_files():
        files, sets, model = TimerFiles(StateDirectory(folder), same_value), TimerSets({}), TimerModel(hashes)
        for epoch, (of_epoch, fire, compacting) in enumerate(work, 1):
            for name, *timer in of_epoch:
                getattr(model, name)(*timer)
            sets = files.add(sets, model.changes(), epoch)
            if fire is not None:
                model.fire(fire)
            if compacting:
                sets = files.compact(sets, model.fired, epoch)
            sets = TimerSets.decode(read_value(dumps_data(sets.encode())))
            check(files, sets, model)


def test_files_of_timers_that_have_all_fired_are_referred_to_no_more(tmp_path: Any) -> None:
    files, queue = TimerFiles(StateDirectory(str(tmp_path))), QUEUES[0]
    sets = TimerSets({})
    for epoch in (1, 2, 3):
        changes = TimerChanges()
        changes.register([epoch * 10], few_hashes([1], 8), [b"timer"], [epoch])
        sets = files.add(sets, {queue: changes}, epoch)
    assert len(sets.names) == 3
    sets = files.compact(sets, {queue: 20}, 4)
    assert len(sets.names) == 1
    assert files.earliest(sets, queue, 20) == 30
    assert files.compact(sets, {queue: 30}, 5) == TimerSets({})


def test_many_deleted_timers_before_the_first_one_are_passed_over(tmp_path: Any) -> None:
    files, queue = TimerFiles(StateDirectory(str(tmp_path))), QUEUES[0]
    count = 20_000
    registered, deleted = TimerChanges(), TimerChanges()
    hashes, ids = few_hashes(list(range(count)), 8), [b"%d" % number for number in range(count)]
    registered.register(range(count), hashes, ids, range(count))
    deleted.delete(range(count - 1), hashes[:-1], ids[:-1])
    sets = files.add(TimerSets({}), {queue: registered}, 1)
    assert files.earliest(sets, queue, 7) == 8
    sets = files.add(sets, {queue: deleted}, 2)
    assert files.earliest(sets, queue, NONE_FIRED) == count - 1
    assert files.earliest(sets, queue, count - 1) is None


def test_a_reference_that_is_something_else_is_damage() -> None:
    with pytest.raises(CorruptStateError, match="timers cannot be decoded"):
        TimerSets.decode([1])
