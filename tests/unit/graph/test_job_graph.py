"""Chains, vertices and levels of all kinds of programs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import WatermarkStrategy
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.datastream import DataStream, OnError, OutputTag, ProcessFunction, StreamExecutionEnvironment
from flinkish.errors import UserCodeError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.minicluster import MiniCluster
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings, VertexDescriptor
from flinkish.testing import TestingSink
from tests.support.functions import PassOn
from tests.support.profiles import examples
from tests.support.programs import chains_of, job_of, new_environment

ODD = OutputTag("odd")


class Swallow(WriterSink):
    """Counts, and nothing else."""

    guarantee = Guarantee.NONE

    def create_writer(self) -> SinkWriter:
        return _SwallowWriter()

    def create_committer(self) -> Committer:
        return _SwallowCommitter()


class _SwallowWriter(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return values


class _SwallowCommitter(Committer):
    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        return sum(map(len, committables))


class OddAside(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> list[object]:
        return [(ODD, value) if value % 2 else value]


def test_operators_joined_by_forward_edges_are_one_vertex() -> None:
    env = new_environment()
    env.from_collection([1]).map(lambda n: n).filter(lambda n: True).print()
    assert chains_of(env) == ["Source: Collection Source -> Map -> Filter -> Sink: Print to Std. Out"]


def test_keys_parallelism_and_unions_cut_chains() -> None:
    env = new_environment(parallelism=2)
    first = env.from_collection([1]).map(lambda n: n).name("wide")
    second = env.from_collection([2]).map(lambda n: n).set_parallelism(1).name("narrow")
    first.union(second).key_by(lambda n: n).sum().print()
    job = job_of(env)
    assert [(vertex.name, vertex.level) for vertex in job.vertices] == [
        ("Source: Collection Source", 0),
        ("Source: Collection Source -> narrow", 0),
        ("wide", 1),
        ("Sum -> Sink: Print to Std. Out", 2),
    ]
    assert [vertex.id for vertex in job.vertices] == [0, 1, 2, 3]
    assert [(given.vertex, given.input_index) for given in job.vertices[3].inputs] == [(2, 0), (1, 0)]


def test_branches_share_the_chain_of_their_operator_and_sinks_are_numbered() -> None:
    env = new_environment()
    numbers = env.from_collection([1]).process(OddAside())
    numbers.print("even")
    numbers.get_side_output(ODD).print("odd")
    numbers.key_by(lambda n: n).sum().print("sum")
    job = job_of(env)
    head = job.vertices[0]
    assert [(operator.name, operator.parent, operator.parent_tag) for operator in head.operators] == [
        ("Source: Collection Source", -1, None),
        ("PROCESS", 0, None),
        ("Sink: Print to Std. Out", 1, None),
        ("Map", 1, "odd"),
        ("Sink: Print to Std. Out", 3, None),
    ]
    assert [sink.id for sink in job.sinks] == [0, 1, 2]
    assert [operator.sink for operator in head.operators] == [None, None, 0, None, 1]
    assert len(head.operators[1].edges) == 1


def test_chaining_can_be_cut_by_hand() -> None:
    env = new_environment()
    numbers = env.from_collection([1])
    first = numbers.map(lambda n: n).name("a")
    third = first.map(lambda n: n).name("b").start_new_chain().map(lambda n: n).name("c").disable_chaining()
    third.map(lambda n: n).name("d").slot_sharing_group("other").map(lambda n: n).name("e")
    assert chains_of(env) == ["Source: Collection Source -> a", "b", "c", "d -> e"]
    env.disable_operator_chaining()
    assert len(chains_of(env)) == 6


def test_keyed_operators_in_a_row_are_one_level_each() -> None:
    env = new_environment(parallelism=2)
    stream = env.from_collection([1])
    for divisor in (2, 3, 5):
        stream = stream.key_by(lambda n, d=divisor: n % d).sum()
    job = job_of(env)
    assert [vertex.level for vertex in job.vertices] == [0, 1, 2, 3]
    assert all(vertex.keyed and len(vertex.key_selectors) == 1 for vertex in job.vertices[1:])
    assert job.vertices[0].operators[0].edges[0].target_parallelism == 2
    env = new_environment(parallelism=2)
    env.from_collection([1]).key_by(lambda n: n).map(lambda n: n)
    job = job_of(env)
    assert not job.vertices[1].keyed, "operators without state have no state backend"
    assert job.vertices[0].operators[0].edges[0].target_parallelism == 2


def test_a_max_parallelism_set_after_key_by_reaches_the_sender() -> None:
    env = new_environment(parallelism=2)
    env.from_collection([1]).key_by(lambda n: n).sum().set_max_parallelism(5)
    assert job_of(env).vertices[0].operators[0].edges[0].partitioner.max_parallelism == 5
    env.set_max_parallelism(7)
    env.from_collection([1]).key_by(lambda n: n).sum()
    job = job_of(env)
    assert sorted(vertex.max_parallelism for vertex in job.vertices if vertex.keyed) == [5, 7]


# --- any program --------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["source", "map", "process", "side", "reduce", "union", "rebalance", "sink", "alone", "keyed"]),
        st.integers(0, 30),
        st.integers(0, 30),
        st.integers(1, 3),
    ),
    max_size=14,
)


def program_of(steps: list[tuple[str, int, int, int]], env: StreamExecutionEnvironment) -> None:
    """Each step adds an operator behind streams that are there already."""
    streams: list[DataStream] = [env.from_collection(range(5))]
    split: list[DataStream] = []
    for step, first, second, parallelism in steps:
        stream, other = streams[first % len(streams)], streams[second % len(streams)]
        if step == "source":
            streams.append(env.from_collection(range(first)))
        elif step == "map":
            streams.append(stream.map(lambda n: n + 1).set_parallelism(parallelism))
        elif step == "process":
            split.append(stream.process(OddAside()).set_parallelism(parallelism))
            streams += [split[-1], split[-1].get_side_output(ODD)]
        elif step == "side" and split:
            streams.append(split[second % len(split)].get_side_output(ODD))
        elif step == "reduce":
            streams.append(stream.key_by(lambda n: n % 3).sum().set_parallelism(parallelism))
        elif step == "union":
            streams.append(stream.union(other))
        elif step == "rebalance":
            streams.append(stream.rebalance())
        elif step == "alone":
            streams.append(stream.map(lambda n: n).disable_chaining())
        elif step == "keyed":
            streams.append(stream.key_by(lambda n: n % 2).filter(lambda n: True))
        else:
            stream.add_sink(Swallow()).set_parallelism(parallelism)
    streams[-1].add_sink(Swallow())


def check_structure(job: JobDescriptor, env: StreamExecutionEnvironment) -> None:
    graph = env.get_stream_graph()
    placed = Counter(operator.uid for vertex in job.vertices for operator in vertex.operators)
    assert placed == Counter(node.effective_uid for node in graph.nodes), "every operator in exactly one vertex"
    in_chains = sum(operator.parent >= 0 for vertex in job.vertices for operator in vertex.operators)
    between = [(v, edge) for v in job.vertices for operator in v.operators for edge in operator.edges]
    assert in_chains + len(between) == len(graph.edges()), "every stream is one joint or one edge"
    for vertex, edge in between:
        assert vertex.level < job.vertex(edge.target).level
    for vertex in job.vertices:
        levels = [job.vertex(given.vertex).level for given in vertex.inputs]
        assert vertex.level == 1 + max(levels, default=-1)
        assert [operator.parent < index for index, operator in enumerate(vertex.operators)]
        assert len({graph.parallelism_of(node) for node in graph.nodes if node.effective_uid in uids(vertex)}) == 1
    assert Counter(edge.target for _, edge in between) == Counter(
        vertex.id for vertex in job.vertices for _ in vertex.inputs
    )


def uids(vertex: VertexDescriptor) -> set[str]:
    return {operator.uid for operator in vertex.operators}


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, st.booleans())
def test_the_job_graph_of_any_program_is_whole(steps: list[tuple[str, int, int, int]], chaining: bool) -> None:
    env = new_environment(parallelism=2)
    if not chaining:
        env.disable_operator_chaining()
    program_of(steps, env)
    check_structure(job_of(env), env)


@settings(max_examples=examples(15), deadline=None)
@given(STEPS)
def test_chaining_changes_nothing_of_the_results(steps: list[tuple[str, int, int, int]]) -> None:
    env = new_environment(parallelism=2)
    program_of(steps, env)
    counts = []
    for chaining in (True, False):
        job = JobGraphGenerator(env.get_stream_graph(), JobSettings(), chaining).generate("job", "test")
        counts.append([report.sink_records for report in MiniCluster(job).run()])
    assert counts[0] == counts[1]


#: one operator more -> with what it is chained
LINKS: dict[str, Callable[[DataStream], DataStream]] = {
    "map": lambda stream: stream.map(lambda value: value),
    "flat_map": lambda stream: stream.flat_map(lambda value: [value]),
    "filter": lambda stream: stream.filter(lambda value: True),
    "process": lambda stream: stream.process(PassOn()),
    "watermarks": lambda stream: stream.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()),
    "on_error": lambda stream: stream.map(lambda value: value).on_error(OnError.skip()),
}

#: More than twice as many operators as could be chained under Python's limit of recursion.
LONG = 500


@pytest.fixture
def limit_of_recursion() -> Iterator[None]:
    """Python's own limit, whatever earlier chains of this process have needed."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("link", LINKS)
def test_several_hundred_operators_run_in_one_chain(limit_of_recursion: None, link: str) -> None:
    env, sink = new_environment(), TestingSink()
    stream: DataStream = env.from_collection([1, 2]).map(lambda value: value).disable_chaining()
    for _ in range(LONG):
        stream = LINKS[link](stream)
    stream.sink_to(sink)
    job = job_of(env)
    assert max(len(vertex.operators) for vertex in job.vertices) > LONG
    MiniCluster(job).run()
    assert sink.values == [1, 2]


def test_at_the_end_of_a_long_chain_functions_have_pythons_own_limit_of_recursion(limit_of_recursion: None) -> None:
    def down(levels: int) -> int:
        return levels and down(levels - 1)

    for levels, fails in ((800, False), (100_000, True)):
        env, sink = new_environment(), TestingSink()
        stream: DataStream = env.from_collection([levels])
        for _ in range(LONG):
            stream = stream.map(lambda value: value)
        stream.map(down).uid("deep").sink_to(sink)
        if fails:
            with pytest.raises(UserCodeError, match=r"RecursionError in user code.*uid deep"):
                MiniCluster(job_of(env)).run()
        else:
            MiniCluster(job_of(env)).run()
            assert sink.values == [0]
