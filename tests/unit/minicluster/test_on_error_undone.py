"""``on_error``: a failed call leaves nothing behind in state, timers, broadcast state and outputs."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.datastream import OutputTag
from flinkish.datastream.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from flinkish.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.minicluster import StateStore
from flinkish.runtime.job.accumulators import counts_of
from flinkish.testing import TestingSink
from tests.support.functions import ListOf
from tests.support.profiles import examples

from .dead_letters import LOOSE, results, stream_of
from .programs import bounded, environment, job_of, list_source, run


class TouchesEverything(KeyedProcessFunction):
    """Writes to all kinds of state and to timers, and emits; then raises for records that say so."""

    def __init__(self, ttl: bool) -> None:
        self.ttl = ttl

    def open(self, runtime_context: RuntimeContext) -> None:
        kinds = {
            "value": ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY()),
            "list": ListStateDescriptor("list", Types.PICKLED_BYTE_ARRAY()),
            "map": MapStateDescriptor("map", Types.PICKLED_BYTE_ARRAY(), Types.PICKLED_BYTE_ARRAY()),
            "reducing": ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
            "aggregating": AggregatingStateDescriptor("aggregating", ListOf(), Types.PICKLED_BYTE_ARRAY()),
        }
        if self.ttl:
            for descriptor in kinds.values():
                descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
        self.value = runtime_context.get_state(kinds["value"])
        self.list = runtime_context.get_list_state(kinds["list"])
        self.map = runtime_context.get_map_state(kinds["map"])
        self.reducing = runtime_context.get_reducing_state(kinds["reducing"])
        self.aggregating = runtime_context.get_aggregating_state(kinds["aggregating"])

    def process_element(self, value: Any, ctx: Any) -> Any:
        key, number, fails, time = value
        timers = ctx.timer_service()
        nested = self.value.value() or {"seen": []}
        nested["seen"].append(number)
        yield key, "before", number
        self.value.update(nested)
        if number % 5 == 0:
            self.list.clear()
        if number % 7 == 0:
            self.list.update([[number]])
        self.list.add([number])
        for element in self.list.get():
            element.append(number)
        self.list.add_all([[number], [number + 1]])
        if number % 3 == 0:
            self.map.remove(number % 4)
        if number % 11 == 0:
            self.map.clear()
        self.map.put(number % 6, [number])
        self.map.get(number % 6).append(number)
        self.map.put_all({number % 2: [0], "k": [number]})
        self.reducing.add(number)
        if number % 13 == 0:
            self.aggregating.clear()
        self.aggregating.add(number)
        timers.register_event_time_timer(time + number % 3)
        timers.delete_event_time_timer(time + number % 4)
        timers.register_event_time_timer(100)
        yield OutputTag("side"), (key, number)
        yield self.all(key, number)
        if fails:
            raise ValueError(number)

    def all(self, key: Any, number: Any) -> Any:
        return (
            key,
            number,
            repr(self.value.value()),
            repr(self.list.get()),
            repr(self.map.items()),
            self.reducing.get(),
            repr(self.aggregating.get()),
        )

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), "timer", timestamp
        self.value.update({"seen": [timestamp]})
        self.map.put("timer", timestamp)
        self.list.add([timestamp])
        yield self.all(ctx.get_current_key(), timestamp)
        if timestamp % 4 == 3:
            ctx.timer_service().register_event_time_timer(timestamp + 1)
            raise ValueError(timestamp)


class OnlyWhatSucceeds(TouchesEverything):
    """The same program as it would be without the calls that fail: the model."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        return () if value[2] else super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return () if timestamp % 4 == 3 else super().on_timer(timestamp, ctx)


def touched(
    function: TouchesEverything, records: list[Any], per_epoch: int, restart_every: int | None, files: str = ""
) -> tuple[list[Any], list[Any], list[Any], StateStore]:
    env, store = environment(2), StateStore(keyed_state=files)
    stream = stream_of(env, records, times=True).key_by(lambda v: v[0]).process(function).uid("touch")
    main, dead = results(stream.on_error(LOOSE))
    side = TestingSink()
    stream.get_side_output(OutputTag("side")).sink_to(side)
    run(job_of(env, inline_state_bytes=0), per_epoch, store=store, restart_every=restart_every)
    return sorted(main.values, key=repr), sorted(side.values), dead.values, store


RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.booleans()), min_size=1, max_size=25).map(
    lambda drawn: [(key, number, fails, time) for time, (key, number, fails) in enumerate(drawn)]
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RECORDS, st.integers(1, 30), st.sampled_from([None, 1, 2]), st.booleans(), st.booleans())
def test_failed_calls_leave_nothing_behind_but_dead_letters(
    records: list[Any], per_epoch: int, restart_every: int | None, ttl: bool, in_files: bool
) -> None:
    with TemporaryDirectory() as files:
        where = files if in_files else ""
        main, side, dead, store = touched(TouchesEverything(ttl), records, per_epoch, restart_every, where)
    model_main, model_side, none, _ = touched(OnlyWhatSucceeds(ttl), records, 1_000, None)
    assert (main, side, none) == (model_main, model_side, [])
    failed = [record for record in records if record[2]]
    of_records = [letter for letter in dead if not letter.is_timer]
    assert sorted(letter.record for letter in of_records) == sorted(failed)
    assert {(letter.key, letter.timestamp) for letter in of_records} == {(r[0], r[3]) for r in failed}
    counts = counts_of(store.accumulators)["touch"]
    assert counts["numRecordsIn"] == len(records) == counts["numRecordsConsumed"] + counts["numDeadLetters"]
    assert counts["numDeadLetters"] == len(failed)
    assert counts["numTimersFailed"] == len(dead) - len(failed)


class Rules(KeyedBroadcastProcessFunction):
    RULES = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        yield value[0], sorted(ctx.get_broadcast_state(self.RULES).items()), self.seen.value()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(self.RULES)
        name, fails, _ = value
        for known in rules.keys():  # noqa: SIM118 - a state, no dict
            rules.put(known, [*rules.get(known), name])
        rules.put(name, [0])
        if name == "c":
            rules.remove("a")
        if name == "d":
            rules.clear()
        ctx.apply_to_keyed_state(
            ValueStateDescriptor("seen", Types.INT()), lambda key, state: state.update(state.value() + 100)
        )
        if fails:
            raise ValueError(name)


class RulesThatSucceed(Rules):
    """The same program as it would be without the calls that fail: the model."""

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return () if value[1] else super().process_broadcast_element(value, ctx)


@pytest.mark.parametrize("fails", ["", "a", "c", "d", "cd", "abcd"])
def test_a_broadcast_element_that_fails_changes_no_rule_and_no_key(fails: str) -> None:
    def rows(function: Rules) -> tuple[list[Any], list[Any]]:
        env = environment(2)
        records = [(key, 0, time) for time in range(8) for key in "xy"]
        keyed = stream_of(env, records, times=True).key_by(lambda v: v[0])
        elements = [(name, name in fails, 2 * time + 1) for time, name in enumerate("abcd")]
        rules = env.from_source(list_source(elements), bounded(), "rules").uid("rules").broadcast(Rules.RULES)
        main, dead = results(keyed.connect(rules).process(function).uid("apply").on_error(LOOSE))
        run(job_of(env), 4, restart_every=1)
        return main.values, dead.values

    main, dead = rows(Rules())
    assert (main, []) == rows(RulesThatSucceed())
    assert any(seen > 100 for _, _, seen in main) or fails == "abcd"
    # each of the two subtasks has its copy, and fails
    assert sorted(letter.record[0] for letter in dead) == sorted(fails * 2)
    assert all(letter.key is None for letter in dead)


class Puts(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, list(ctx.get_broadcast_state(Rules.RULES).items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(Rules.RULES)
        if value == "bad":
            nested = rules.get("a")
            nested.append(1)
            rules.put("a", nested)
            rules.remove("b")
            rules.put("new", [])
            rules.clear()
            raise ValueError(value)
        rules.put(value, [value])


def test_broadcast_state_comes_back_in_its_order_and_to_its_depth() -> None:
    env = environment(1)
    rules = env.from_source(list_source(["a", "b", "c", "bad"]), WatermarkStrategy.no_watermarks(), "rules")
    records = env.from_source(list_source(["x"], pauses=(2,)), WatermarkStrategy.no_watermarks(), "records")
    main, dead = results(records.connect(rules.broadcast(Rules.RULES)).process(Puts()).on_error(LOOSE))
    run(job_of(env), 100)
    assert main.values == [("x", [("a", ["a"]), ("b", ["b"]), ("c", ["c"])])]
    assert [letter.record for letter in dead.values] == ["bad"]
