"""State that expires, by the epoch's processing time."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.common.time import Time
from flinkish.common.typeinfo import Types
from flinkish.core.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.saved.columns import stored_rows as rows
from tests.support.functions import average

ANY = Types.PICKLED_BYTE_ARRAY()


def descriptors() -> dict[str, StateDescriptor]:
    return {
        "value": ValueStateDescriptor("value", ANY),
        "list": ListStateDescriptor("list", ANY),
        "map": MapStateDescriptor("map", ANY, ANY),
        "reducing": ReducingStateDescriptor("reducing", lambda a, b: a + b, ANY),
        "aggregating": AggregatingStateDescriptor("aggregating", average(), ANY),
    }


class Clocked:
    """States of key "k" in key group 0 that live for 100 ms, at a time that the test sets."""

    def __init__(self, builder: StateTtlConfig.Builder | None = None, body: bytes | None = None) -> None:
        self.epoch = EpochInfo()
        self.backend = KeyedStateBackend("operator 'tested'", self.epoch)
        self.backend.restore(body)
        self.backend.current_key = "k"
        self.states: dict[str, Any] = {}
        for name, descriptor in descriptors().items():
            if builder is not None:
                descriptor.enable_time_to_live(builder.build())
            self.states[name] = self.backend.partitioned_state(descriptor)

    def at(self, time_ms: int) -> None:
        self.epoch.processing_time_ms = time_ms

    def write(self, number: int) -> None:
        self.states["value"].update(number)
        self.states["list"].add(number)
        self.states["map"][number] = number
        self.states["reducing"].add(number)
        self.states["aggregating"].add(number)

    def read(self) -> tuple[Any, ...]:
        return (
            self.states["value"].value(),
            self.states["list"].get(),
            dict(self.states["map"].items()),
            self.states["reducing"].get(),
            self.states["aggregating"].get(),
        )


NOTHING = (None, [], {}, None, None)


def ttl() -> StateTtlConfig.Builder:
    return StateTtlConfig.new_builder(Time.milliseconds(100))


def test_state_lives_until_its_time_is_over_and_not_a_millisecond_longer() -> None:
    clocked = Clocked(ttl())
    clocked.at(1000)
    clocked.write(4)
    clocked.at(1099)
    assert clocked.read() == (4, [4], {4: 4}, 4, 4.0)
    clocked.at(1100)
    assert clocked.read() == NOTHING
    assert clocked.backend.snapshot() is None


def test_writing_prolongs_life_and_reading_does_not_by_default() -> None:
    clocked = Clocked(ttl())
    clocked.write(4)
    clocked.at(60)
    clocked.read()
    clocked.write(6)
    clocked.at(120)
    # elements of lists and entries of maps expire one by one
    assert clocked.read() == (6, [6], {6: 6}, 10, 5.0)
    clocked.at(160)
    assert clocked.read() == NOTHING


def test_reading_prolongs_life_if_so_configured() -> None:
    clocked = Clocked(ttl().update_ttl_on_read_and_write())
    clocked.write(4)
    for time_ms in (60, 120, 180, 240):
        clocked.at(time_ms)
        assert clocked.read() == (4, [4], {4: 4}, 4, 4.0)
    clocked.at(340)
    assert clocked.read() == NOTHING


def test_asking_for_a_map_key_prolongs_its_life_if_so_configured() -> None:
    clocked = Clocked(ttl().update_ttl_on_read_and_write())
    clocked.write(4)
    clocked.at(60)
    assert 4 in clocked.states["map"]
    clocked.at(159)
    assert clocked.states["map"][4] == 4


def test_expired_state_can_be_read_once_if_so_configured() -> None:
    clocked = Clocked(ttl().return_expired_if_not_cleaned_up())
    clocked.write(4)
    clocked.at(100)
    assert clocked.read() == (4, [4], {4: 4}, 4, 4.0)
    assert clocked.read() == NOTHING


def test_reading_never_revives_what_is_expired_though_it_may_be_read() -> None:
    clocked = Clocked(ttl().update_ttl_on_read_and_write().return_expired_if_not_cleaned_up())
    clocked.states["list"].add(1)
    clocked.states["map"][1] = 1
    clocked.at(50)
    clocked.states["list"].add(2)
    clocked.states["map"][2] = 2
    clocked.at(100)
    assert clocked.states["list"].get() == [1, 2]
    assert dict(clocked.states["map"].items()) == {1: 1, 2: 2}
    assert clocked.states["list"].get() == [2], "as in Flink the read that renews the others removes it"
    assert dict(clocked.states["map"].items()) == {2: 2}
    clocked.at(199)
    assert clocked.states["list"].get() == [2]
    assert clocked.states["map"].get(2) == 2


def test_expired_elements_of_a_list_can_be_read_as_long_as_one_lives_if_so_configured() -> None:
    clocked = Clocked(ttl().return_expired_if_not_cleaned_up())
    clocked.states["list"].add(1)
    clocked.at(50)
    clocked.states["list"].add(2)
    clocked.at(100)
    assert clocked.states["list"].get() == clocked.states["list"].get() == [1, 2]
    clocked.at(150)
    assert clocked.states["list"].get() == [1, 2]
    assert clocked.states["list"].get() == []


def test_asking_whether_a_map_is_empty_neither_removes_nor_renews_its_entries() -> None:
    clocked = Clocked(ttl().return_expired_if_not_cleaned_up())
    clocked.states["map"][1] = 1
    clocked.at(100)
    assert not clocked.states["map"].is_empty()
    assert clocked.states["map"].get(1) == 1
    assert clocked.states["map"].is_empty()

    clocked = Clocked(ttl().update_ttl_on_read_and_write())
    clocked.states["map"][1] = 1
    clocked.at(60)
    assert not clocked.states["map"].is_empty()
    clocked.at(100)
    assert clocked.states["map"].is_empty()


def test_what_is_added_to_expired_state_starts_afresh() -> None:
    clocked = Clocked(ttl())
    clocked.write(4)
    clocked.at(100)
    clocked.write(6)
    assert clocked.read() == (6, [6], {6: 6}, 6, 6.0)


def test_the_disabled_update_type_switches_expiry_off() -> None:
    clocked = Clocked(ttl().set_update_type(StateTtlConfig.UpdateType.Disabled))
    clocked.write(4)
    clocked.at(10_000)
    assert clocked.read() == (4, [4], {4: 4}, 4, 4.0)


@pytest.mark.parametrize(
    "builder",
    [
        ttl(),
        ttl().disable_cleanup_in_background().cleanup_full_snapshot(),
        ttl().disable_cleanup_in_background().cleanup_incrementally(10, True),
        ttl().disable_cleanup_in_background().cleanup_in_rocksdb_compact_filter(1000),
    ],
)
def test_expired_state_that_nobody_reads_is_not_written(builder: StateTtlConfig.Builder) -> None:
    clocked = Clocked(builder)
    clocked.write(4)
    clocked.at(50)
    clocked.backend.current_key = "other"
    clocked.write(5)
    clocked.at(120)
    body = clocked.backend.snapshot()
    assert {row.key for row in rows(body)} == {"other"}
    assert {row.state for row in rows(body)} >= {"value", "list", "map", "reducing", "aggregating"}


def test_a_list_and_a_map_are_purged_element_by_element() -> None:
    clocked = Clocked(ttl())
    clocked.write(4)
    clocked.at(50)
    clocked.write(6)
    clocked.at(120)
    found = {row.state: row.value for row in rows(clocked.backend.snapshot())}
    assert (found["list"], found["map"]) == ([6], (6, 6))
    assert clocked.read()[1:3] == ([6], {6: 6})


def test_without_any_cleanup_expired_state_is_written_but_not_visible() -> None:
    clocked = Clocked(ttl().disable_cleanup_in_background())
    clocked.write(4)
    clocked.at(120)
    body = clocked.backend.snapshot()
    assert {row.value for row in rows(body) if row.state == "value"} == {4}
    again = Clocked(ttl(), body)
    again.at(120)
    assert again.read() == NOTHING


def test_time_to_live_can_be_switched_on_for_state_that_was_written_without_it() -> None:
    before = Clocked()
    before.write(4)
    clocked = Clocked(ttl(), before.backend.snapshot())
    clocked.at(5000)
    assert clocked.read() == (4, [4], {4: 4}, 4, 4.0)
    clocked.states["list"].add(5)
    clocked.at(5099)
    assert clocked.read() == (4, [4, 5], {4: 4}, 4, 4.0)
    clocked.at(5100)
    assert clocked.read() == NOTHING


def test_time_to_live_can_be_switched_off_for_state_that_was_written_with_it() -> None:
    before = Clocked(ttl())
    before.write(4)
    clocked = Clocked(None, before.backend.snapshot())
    clocked.at(5000)
    assert clocked.read() == (4, [4], {4: 4}, 4, 4.0)


def test_times_are_forgotten_while_time_to_live_is_off() -> None:
    before = Clocked(ttl())
    before.write(4)
    between = Clocked(None, before.backend.snapshot())
    between.write(5)
    after = Clocked(ttl(), between.backend.snapshot())
    after.at(5000)
    assert after.states["value"].value() == 5


def test_the_configuration_answers_what_it_was_built_with() -> None:
    strategies = StateTtlConfig.CleanupStrategies
    config = ttl().cleanup_incrementally(7, True).cleanup_in_rocksdb_compact_filter(70).set_ttl(Time.hours(1)).build()
    assert config.get_ttl() == Time.hours(1) and config.is_enabled()
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    cleanup = config.get_cleanup_strategies()
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert isinstance(incremental, strategies.IncrementalCleanupStrategy)
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (7, True)
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction is not None and compaction.get_query_time_after_num_entries() == 70
    assert cleanup.is_cleanup_in_background() and not cleanup.in_full_snapshot()
    with pytest.raises(ValueError, match="positive"):
        StateTtlConfig.new_builder(Time.milliseconds(0)).build()
