"""``get_execution_plan`` gives what Flink's plan visualizer reads; ``explain`` shows operators, vertices, levels and
subtasks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flinkish.common import Types, WatermarkStrategy
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.datastream import OutputTag, StreamExecutionEnvironment
from flinkish.testing.doubles import TestingSink
from tests.support.functions import PassOn
from tests.support.programs import new_environment


def plan_of(env: StreamExecutionEnvironment) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = json.loads(env.get_execution_plan())["nodes"]
    return nodes


def test_a_small_program_has_the_plan_that_flink_gives_it() -> None:
    env = new_environment(parallelism=2)
    pairs = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    pairs.map(lambda pair: pair).key_by(lambda pair: pair[0]).sum(1).set_description("the sums").print()
    key_by = "_stream_key_by_map_operator"
    rows = [
        (1, "Source: Collection Source", "Data Source", "Source: Collection Source", 1, None),
        (2, "Map", "Operator", "Map", 2, "REBALANCE"),
        (3, key_by, "Operator", key_by, 2, "FORWARD"),
        (4, "Sum", "Operator", "the sums", 2, "HASH"),
        (5, "Sink: Print to Std. Out", "Data Sink", "Sink: Print to Std. Out", 2, "FORWARD"),
    ]
    plan: list[dict[str, Any]] = []
    for number, kind, pact, contents, parallelism, way in rows:
        plan.append({"id": number, "type": kind, "pact": pact, "contents": contents, "parallelism": parallelism})
        if way is not None:
            plan[-1]["predecessors"] = [{"id": number - 1, "ship_strategy": way, "side": "second"}]
    assert plan_of(env) == plan


def test_the_plan_has_the_operators_that_pyflink_puts_behind_key_by() -> None:
    env = new_environment(parallelism=4)
    source = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()])).name("From Collection")
    keyed = source.key_by(lambda pair: pair[0], Types.STRING())
    keyed.map(lambda pair: pair).name("Plus Two Map").set_parallelism(3).print()
    keyed.sum(1)
    keyed.print()
    keyed.sink_to(TestingSink())
    plan = {node["id"]: node for node in plan_of(env)}
    shown = [
        (node["type"], node["parallelism"], [(plan[one["id"]]["type"], one["ship_strategy"]) for one in inputs])
        for node in plan.values()
        for inputs in [node.get("predecessors", [])]
    ]
    key_by = "_stream_key_by_map_operator"
    assert shown == [
        ("Source: From Collection", 1, []),
        (key_by, 1, [("Source: From Collection", "FORWARD")]),
        ("Plus Two Map", 3, [(key_by, "HASH")]),
        ("Sum", 4, [(key_by, "HASH")]),
        (key_by, 4, [("Source: From Collection", "REBALANCE")]),
        ("Sink: Print to Std. Out", 4, [("Plus Two Map", "REBALANCE")]),
        ("_keyed_stream_values_operator", 4, [(key_by, "HASH")]),
        ("Sink: Print to Std. Out", 4, [("_keyed_stream_values_operator", "FORWARD")]),
        ("Sink: TestingSink", 4, [(key_by, "HASH")]),
    ]


def test_sinks_come_last_and_a_union_has_several_predecessors() -> None:
    env = new_environment()
    first, second = env.from_collection([1]), env.from_collection([2])
    first.print()
    first.union(second.broadcast()).map(lambda n: n)
    nodes = plan_of(env)
    assert [node["pact"] for node in nodes] == ["Data Source", "Data Source", "Operator", "Data Sink"]
    assert [(edge["id"], edge["ship_strategy"]) for edge in nodes[2]["predecessors"]] == [
        (1, "FORWARD"),
        (2, "BROADCAST"),
    ]


def test_every_way_has_flinks_name() -> None:
    env = new_environment()
    numbers = env.from_collection([1])
    ways = [
        numbers.forward(),
        numbers.rebalance(),
        numbers.rescale(),
        numbers.shuffle(),
        numbers.broadcast(),
        numbers.partition_custom(lambda key, count: 0, lambda n: n),
        numbers.key_by(lambda n: n),
    ]
    for way in ways:
        way.map(lambda n: n)
    maps = [node for node in plan_of(env) if node["type"] == "Map"]
    strategies = [node["predecessors"][0]["ship_strategy"] for node in maps]
    assert strategies == ["FORWARD", "REBALANCE", "RESCALE", "SHUFFLE", "BROADCAST", "CUSTOM", "HASH"]
    assert env.get_execution_plan() == env.get_execution_plan(), "it leaves the program as it is"


def columns(env: StreamExecutionEnvironment) -> list[list[str]]:
    """The cells of the table, without the lines above."""
    lines = env.explain().splitlines()
    starts = [i for i in range(len(lines[1])) if lines[1][i] == "-" and (i == 0 or lines[1][i - 1] == " ")]
    return [[line[a:b].rstrip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines[2:]]


def test_the_table_leads_from_operator_to_vertex_level_and_subtasks() -> None:
    env = new_environment(parallelism=2)
    source = env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "numbers")
    source.map(lambda n: n).uid("same").key_by(lambda n: n % 3).sum().set_max_parallelism(6).print()
    assert columns(env) == [
        ["Source: numbers", "(source-numbers-1)", "0", "0", "2", "-", "Source: numbers -> Map (1/2), (2/2)", "-"],
        ["  Map", "same", "0", "", "", "", "", "HASH -> 1"],
        ["Sum", "(reduce-3)", "1", "1", "2", "6", "Sum -> Sink: Print to Std. Out (1/2), (2/2)", "-"],
        ["  Sink: Print to Std. Out", "(sink-print-to-std-out-4)", "1", "", "", "", "", "-"],
    ]


@pytest.mark.parametrize(
    ("parallelism", "shown"),
    [(1, "Map (1/1)"), (4, "Map (1/4), (2/4), (3/4), (4/4)"), (10, "Map (1/10), (2/10), ..., (10/10)")],
)
def test_tasks_have_flinks_names_and_of_many_the_ends_are_shown(parallelism: int, shown: str) -> None:
    env = new_environment(parallelism=parallelism)
    env.from_collection([1]).rebalance().map(lambda n: n)
    assert [cells[6] for cells in columns(env)] == ["Source: Collection Source (1/1)", shown]


@pytest.mark.parametrize("method", ["sum", "min", "max", "min_by", "max_by", "reduce"])
def test_plans_name_an_aggregation_and_its_generated_uid_and_pyflinks_name_stay(method: str) -> None:
    env = new_environment()
    keyed = env.from_collection([1]).key_by(lambda n: n)
    stream = keyed.reduce(max) if method == "reduce" else getattr(keyed, method)()
    assert columns(env)[1][:2] == [method.title().replace("_", " "), "(reduce-2)"]
    assert stream.get_name() == "Reduce"
    stream.name("Sum")
    assert (columns(env)[1][:2], stream.get_name()) == (["Sum", "(sum-2)"], "Sum"), "the program's name is the name"


def test_side_outputs_are_shown_with_their_tags() -> None:
    env = new_environment(parallelism=2)
    env.from_collection([1]).process(PassOn()).get_side_output(OutputTag("late")).set_parallelism(1)
    assert columns(env)[1][7] == "REBALANCE -> 2 [late]"
