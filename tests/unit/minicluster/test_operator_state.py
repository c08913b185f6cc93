"""Operators whose subtask holds something that belongs to no key: rules that are broadcast to all subtasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph, StreamNode, Tap
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.exchange.partitioners import BroadcastPartitioner
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.operators.source_and_sink import SinkWriterFactory, SourceOperatorFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.state.saved.columns import TaskBody, stored_rows
from flinkish.runtime.state.saved.operator_states import decode_operator_states
from flinkish.testing import TestingSink, TestingSource

from .programs import list_source, run

MARKS: list[tuple[int, int]] = []


class Rules(StreamOperator):
    """Input 0: ``(key, time)``; input 1: ``(rule, time)``, to all subtasks. Emits each record with the rules known, and
    counts the records: by key in keyed state, all of them in operator state."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        state = self.context.operator_state
        if input_index == 1:
            state.put("rules", state.get("rules", ()) + tuple(rule for rule, _ in values))
            return
        rules = state.get("rules", ())
        state.put("seen", state.get("seen", 0) + len(values))
        assert self.context.keyed_state is not None
        table = self.context.keyed_state.table("count", "value")
        counts = table.namespace(None)
        for key, _ in values:
            counts[key] = counts.get(key, 0) + 1
            table.mark(None, key)
        self.output.collect([(key, time, rules) for key, time in values], timestamps)

    def process_watermark(self, watermark_ms: int) -> None:
        MARKS.append((self.context.subtask, watermark_ms))
        super().process_watermark(watermark_ms)


@dataclass
class RulesFactory(OperatorFactoryBase):
    keyed: bool = True
    has_operator_state: bool = True

    def create(self) -> Rules:
        return Rules()


def program(
    records: TestingSource, rules: TestingSource, parallelism: int = 2, times: bool = True
) -> tuple[JobDescriptor, TestingSink]:
    graph, sink = StreamGraph(parallelism), TestingSink()
    any_type = Types.PICKLED_BYTE_ARRAY()

    def add(name: str, factory: Any, taps: list[list[Tap]], **settings: Any) -> StreamNode:
        return graph.add(StreamNode(graph.next_id(), name, factory, any_type, taps, **settings))

    def source(name: str, read: TestingSource) -> StreamNode:
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
        RulesFactory(),
        [[Tap(keyed, key_selector=by_key)], [Tap(broadcast, BroadcastPartitioner())]],
        key_selectors=(by_key,),
        uid="both-uid",
    )
    add("sink", SinkWriterFactory(sink), [[Tap(both)]], sink=sink)
    MARKS.clear()
    return JobGraphGenerator(graph, JobSettings()).generate("id", "rules"), sink


RECORDS = [(key, time) for time, key in enumerate("abcdefgh" * 5)]


@pytest.mark.parametrize("restart_every", [None, 1])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_what_a_subtask_learns_in_an_epoch_is_known_to_all_of_its_keys(
    parallelism: int, restart_every: int | None
) -> None:
    rules = list_source([("r0", 0), ("r1", 1)], pauses=(1,))
    job, sink = program(list_source(RECORDS), rules, parallelism)
    run(job, 8, restart_every=restart_every)
    known = {0: (), 1: ("r0", "r1")}
    assert Counter(sink.values) == Counter((k, t, known[min(t // 8, 1)]) for k, t in RECORDS)


def test_the_watermark_of_a_subtask_is_the_minimum_of_both_inputs() -> None:
    job, _ = program(list_source(RECORDS), list_source([("r0", 3), ("r1", 20)], pauses=(2,)))
    marks: list[set[tuple[int, int]]] = []

    def note() -> None:
        marks.append(set(MARKS))
        MARKS.clear()

    run(job, 8, on_epoch=note)
    assert marks[:2] == [set(), set()], "nothing is known of the rules' time yet"
    highest = {subtask: max(w for s, w in marks[2] if s == subtask) for subtask in (0, 1)}
    assert set(highest.values()) == {22}, "the rules have ended, the records are at 23"
    assert {subtask for subtask, w in marks[-1] if w == 2**63 - 1} == {0, 1}


def test_keyed_and_operator_state_lie_beside_each_other_and_outlive_the_worker() -> None:
    job, _ = program(list_source(RECORDS), list_source([("r0", 0)]))
    store = StateStore()
    run(job, 8, store=store, restart_every=1)
    assert store.finished
    keyed = next(vertex for vertex in job.vertices if vertex.keyed)
    stored = [TaskBody.decode(body) for (vertex, _), (_, body) in store.tasks.items() if vertex == keyed.id]
    counts = {row.key: row.value for body in stored for row in stored_rows(body.keyed)}
    assert counts == dict.fromkeys("abcdefgh", 5)
    of_operators = [decode_operator_states(body.operators)["both-uid"]["operator"] for body in stored]
    assert all(state["rules"] == ("r0",) for state in of_operators)
    assert sum(state["seen"] for state in of_operators) == len(RECORDS)


def test_without_any_watermark_operator_state_is_there_after_a_restart() -> None:
    """After a restart its state is in the store only."""
    rules = list_source([("r0", 0)], endless=True)
    job, sink = program(list_source(RECORDS[:8] * 4, endless=True), rules, times=False)
    store = StateStore()
    for _ in range(4):
        cluster = MiniCluster(job, ManualClock(), store, 8)
        cluster.run_epoch()
        cluster.dispose()
    assert {rules for _, _, rules in sink.values[8:]} == {("r0",)}
    assert len(sink.values) == 32
