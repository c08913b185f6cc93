"""BATCH mode: the broadcast side of an operator is consumed to its end before the other side."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from flinkish.common import Types, no_effect
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.datastream import BroadcastProcessFunction, KeyedBroadcastProcessFunction, RuntimeExecutionMode
from flinkish.datastream.state import MapStateDescriptor
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.testing import TestingSink

from .programs import environment, job_of, list_source, run

RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())


class Rules(BroadcastProcessFunction[Any, Any, Any]):
    """Each record with the number of rules that are known."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield value, len(list(ctx.get_broadcast_state(RULES).keys()))

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(value, value)


class KeyedRules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield value, len(list(ctx.get_broadcast_state(RULES).keys()))

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(value, value)


def source(env: Any, name: str, *splits: list[Any]) -> Any:
    stream = env.from_source(list_source(*splits), WatermarkStrategy.no_watermarks(), name).uid(name)
    return stream.map(lambda v: v)


def connected(records: Any, rules: Any, keyed: bool) -> Any:
    side = rules.broadcast(RULES)
    if keyed:
        return records.key_by(lambda v: v % 3).connect(side).process(KeyedRules())
    return records.connect(side).process(Rules())


def batch(env: Any, mode: RuntimeExecutionMode = RuntimeExecutionMode.BATCH) -> JobDescriptor:
    env.set_runtime_mode(mode)
    return job_of(env)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("per_epoch", "restart_every"),
    [
        (1, 1),
        (3, None),
        (100, None),
        *(pytest.param(*way, marks=pytest.mark.nightly) for way in [(1, None), (3, 1), (100, 1)]),
    ],
)
@pytest.mark.parametrize("rules_come_first_in_the_program", [False, True])
def test_each_record_meets_all_rules(
    keyed: bool, per_epoch: int, restart_every: int | None, rules_come_first_in_the_program: bool
) -> None:
    env, sink = environment(2), TestingSink()
    if rules_come_first_in_the_program:
        rules = source(env, "rules", list(range(7)), [10])
        records = source(env, "records", list(range(20)), list(range(20, 30)))
    else:
        records = source(env, "records", list(range(20)), list(range(20, 30)))
        rules = source(env, "rules", list(range(7)), [10])
    connected(records, rules.key_by(lambda v: v).map(lambda v: v), keyed).sink_to(sink)
    run(batch(env), per_epoch, restart_every=restart_every)
    assert sorted(sink.values) == [(n, 8) for n in range(30)]


def test_in_streaming_mode_both_sides_are_read_side_by_side() -> None:
    env, sink = environment(1), TestingSink()
    connected(source(env, "records", list(range(5))), source(env, "rules", list(range(5))), False).sink_to(sink)
    run(batch(env, RuntimeExecutionMode.STREAMING), 1)
    assert {known for _, known in sink.values} != {5}


def test_a_chain_of_operators_waits_for_all_of_their_broadcast_sides() -> None:
    env, sink = environment(2), TestingSink()
    first = connected(source(env, "records", list(range(6))), source(env, "rules", [1, 2]), False)
    more = connected(source(env, "more rules", [1, 2, 3]), source(env, "rules of rules", [1]), False)
    connected(first.map(lambda v: v[0]), more.map(lambda v: v[0]), True).sink_to(sink)
    run(batch(env), 1)
    assert sorted(sink.values) == [(n, 3) for n in range(6)]


@pytest.mark.parametrize("per_epoch", [2, 100])
def test_where_sources_cannot_wait_nothing_is_lost_and_it_is_said(
    per_epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    no_effect.forget_reports()
    env, sinks = environment(2), [TestingSink() for _ in range(3)]
    both = source(env, "both", list(range(9)))
    one, other = source(env, "one", [1, 2]), source(env, "other", [1, 2, 3])
    connected(both, both, False).name("of itself").sink_to(sinks[0])
    connected(one, other, False).name("there").sink_to(sinks[1])
    connected(other, one, False).name("back").sink_to(sinks[2])
    with caplog.at_level(logging.WARNING):
        run(batch(env), per_epoch)
    assert [len(sink.values) for sink in sinks] == [9, 2, 3]
    assert all(known == 3 for _, known in sinks[1].values)
    told = [record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()]
    assert ["'of itself'" in text or "'back'" in text for text in told] == [True, True]
