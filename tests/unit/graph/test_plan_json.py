"""``get_execution_plan`` gives what Flink's plan visualizer reads."""

from __future__ import annotations

import json
from typing import Any

from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.testing.doubles import TestingSink
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
        (4, "Reduce", "Operator", "the sums", 2, "HASH"),
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
        ("Reduce", 4, [(key_by, "HASH")]),
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
