"""Operators whose subtask holds something that belongs to no key: rules that are broadcast to all subtasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.errors import InternalError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph, StreamNode, Tap
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.clock import ManualClock
from flinkish.runtime.deployment import JobDescriptor, JobSettings
from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.operators.sink_writer import SinkWriterFactory
from flinkish.runtime.operators.source import SourceOperatorFactory
from flinkish.runtime.operators.timestamps_and_watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.partitioners import BroadcastPartitioner

from .programs import ListSource, MemorySink, run

MARKS: list[tuple[int, int]] = []


class Rules(StreamOperator):
    """Input 0: ``(key, time)``; input 1: ``(rule, time)``, to all subtasks. Emits each record with the rules known."""

    def __init__(self, misbehave: bool) -> None:
        self._misbehave = misbehave

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        state = self.context.operator_state
        if input_index == 1:
            state.put("rules", state.get("rules", ()) + tuple(rule for rule, _ in values))
            return
        if self._misbehave:
            state.put("rules", ())
        rules = state.get("rules", ())
        self.output.collect([(key, time, rules) for key, time in values], timestamps)

    def process_watermark(self, watermark_ms: int) -> None:
        MARKS.append((self.context.epoch.channel, watermark_ms))
        super().process_watermark(watermark_ms)

    def advance_processing_time(self, time_ms: int) -> None:
        assert self.context.keyed_state is not None
        self.context.keyed_state.next_timer_ms()


@dataclass
class RulesFactory(OperatorFactoryBase):
    keyed: bool = True
    has_subtask_state: bool = True
    misbehave: bool = False

    def create(self) -> Rules:
        return Rules(self.misbehave)


def program(
    records: ListSource, rules: ListSource, parallelism: int = 2, misbehave: bool = False, times: bool = True
) -> tuple[JobDescriptor, MemorySink]:
    graph, sink = StreamGraph(parallelism), MemorySink()
    any_type = Types.PICKLED_BYTE_ARRAY()

    def add(name: str, factory: Any, taps: list[list[Tap]], **settings: Any) -> StreamNode:
        return graph.add(StreamNode(graph.next_id(), name, factory, any_type, taps, **settings))

    def source(name: str, read: ListSource) -> StreamNode:
        node = add(name, SourceOperatorFactory(), [], source=read)
        if not times:
            return node
        stamped = TimestampsAndWatermarksFactory(lambda value, _: value[1], 0)
        return add(f"{name} times", stamped, [[Tap(node)]], part_of_source=True)

    def by_key(value: Any) -> Any:
        return value[0]

    keyed, broadcast = source("records", records), source("rules", rules)
    both = add(
        "both",
        RulesFactory(misbehave=misbehave),
        [[Tap(keyed, key_selector=by_key)], [Tap(broadcast, BroadcastPartitioner())]],
        key_selectors=(by_key,),
    )
    add("sink", SinkWriterFactory(sink), [[Tap(both)]], sink=sink)
    MARKS.clear()
    return JobGraphGenerator(graph, JobSettings()).generate("id", "rules"), sink


RECORDS = [(key, time) for time, key in enumerate("abcdefgh" * 5)]


@pytest.mark.parametrize("restart_every", [None, 1])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_what_the_subtask_channel_learns_in_an_epoch_is_known_to_its_key_groups(
    parallelism: int, restart_every: int | None
) -> None:
    rules = ListSource([("r0", 0), ("r1", 1)], pauses=(1,))
    job, sink = program(ListSource(RECORDS), rules, parallelism)
    run(job, 8, restart_every=restart_every)
    known = {0: (), 1: ("r0", "r1")}
    assert Counter(sink.values) == Counter((k, t, known[min(t // 8, 1)]) for k, t in RECORDS)


def test_the_watermark_of_key_groups_and_subtask_channels_is_the_minimum_of_both_inputs() -> None:
    job, _ = program(ListSource(RECORDS), ListSource([("r0", 3), ("r1", 20)], pauses=(2,)))
    marks: list[set[tuple[int, int]]] = []

    def note() -> None:
        marks.append(set(MARKS))
        MARKS.clear()

    run(job, 8, on_epoch=note)
    channels = {channel.number for vertex in job.vertices if vertex.keyed for channel in vertex.channels()}
    assert len(channels) == 8 + 2
    assert marks[:2] == [set(), set()], "nothing is known of the rules' time yet"
    highest = {channel: max(w for c, w in marks[2] if c == channel) for channel in channels}
    assert set(highest.values()) == {22}, "the rules have ended, the records are at 23"
    assert {c for c, w in marks[-1] if w == 2**63 - 1} == channels


def test_all_channels_finish_and_the_subtask_state_outlives_the_worker() -> None:
    job, _ = program(ListSource(RECORDS), ListSource([("r0", 0)]))
    store = StateStore()
    run(job, 8, store=store)
    assert store.finished
    keyed = next(vertex for vertex in job.vertices if vertex.keyed)
    bodies = {channel: body for (vertex, channel), (_, body) in store.channels.items() if vertex == keyed.id}
    assert {channel for channel, body in bodies.items() if body} == {keyed.max_parallelism, keyed.max_parallelism + 1}


def test_operator_state_that_a_key_group_changes_is_refused_because_it_would_be_lost() -> None:
    job, _ = program(ListSource(RECORDS), ListSource([("r0", 0)]), misbehave=True)
    with pytest.raises(InternalError, match="operator state was changed while a key group was processed"):
        run(job, 8)


def test_without_any_watermark_the_subtask_channel_is_called_before_its_key_groups_all_the_same() -> None:
    """After a restart its state is in the store only."""
    rules = ListSource([("r0", 0)], endless=True)
    job, sink = program(ListSource(RECORDS[:8] * 4, endless=True), rules, times=False)
    store = StateStore()
    for _ in range(4):
        cluster = MiniCluster(job, ManualClock(), store, 8)
        cluster.run_epoch()
        cluster.dispose()
    assert {rules for _, _, rules in sink.values} == {("r0",)}
    assert len(sink.values) == 32
