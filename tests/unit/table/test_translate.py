"""The operators that queries become: which there are, their names, uids, chains and parallelism."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamNode
from flinkish.table import StreamTableEnvironment
from tests.support.programs import chains_of, job_of, new_environment, results_of

COLUMNS = "id BIGINT, kind STRING, price DOUBLE, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND"


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return new_environment(2)


@pytest.fixture
def t_env(env: StreamExecutionEnvironment, tmp_path: Path) -> StreamTableEnvironment:
    at = pa.array([1_000, 2_000, 3_000], pa.timestamp("ms"))
    rows = {"id": [1, 2, 3], "kind": ["a", "b", "a"], "price": [1.5, 2.5, 4.0], "at": at}
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "in" / "rows.parquet")
    t_env = StreamTableEnvironment.create(env)
    declare(t_env, "bids", COLUMNS, f"'filesystem', 'format' = 'parquet', 'path' = '{tmp_path / 'in'}'")
    for name in ("one", "other"):
        declare(t_env, name, "kind STRING, n BIGINT", "'print'")
    return t_env


def declare(t_env: StreamTableEnvironment, name: str, columns: str, connector: str) -> None:
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ('connector' = {connector})")


def inserted(env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, *statements: str) -> list[StreamNode]:
    """The operators of these inserts as one job."""
    statement_set = t_env.create_statement_set()
    for statement in statements:
        statement_set.add_insert_sql(statement)
    statement_set.attach_as_datastream()
    return env.get_stream_graph().nodes


def test_a_table_is_scanned_once_with_the_columns_that_any_insert_uses(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    nodes = inserted(
        env,
        t_env,
        "INSERT INTO one SELECT kind, id FROM bids",
        "INSERT INTO other SELECT kind, CAST(price AS BIGINT) FROM bids WHERE id > 1",
    )
    (source,) = (node for node in nodes if node.source is not None)
    assert source.description is not None
    assert all(f"{name}" in source.description for name in ("id", "kind", "price"))
    assert source.name.startswith("Source: bids[")
    assert source.uid == "table/source/bids"


def test_equal_queries_are_one_operator(env: StreamExecutionEnvironment, t_env: StreamTableEnvironment) -> None:
    query = "SELECT kind, COUNT(*) FROM bids GROUP BY kind"
    nodes = inserted(env, t_env, f"INSERT INTO one {query}", f"INSERT INTO other {query}")
    assert sum(node.keyed for node in nodes) == 1
    assert sum(node.sink is not None for node in nodes) == 2


@pytest.mark.parametrize("call", ["COUNT(*)", "SUM(id) + COUNT(DISTINCT price)"])
def test_what_has_state_has_uids_of_its_place_and_keys_whatever_it_computes(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, call: str
) -> None:
    nested = "SELECT k, MAX(n) FROM (SELECT kind AS k, id, {} AS n FROM bids GROUP BY kind, id) GROUP BY k"
    nodes = inserted(env, t_env, f"INSERT INTO one {nested.format(call)}")
    assert [node.uid for node in nodes if node.keyed] == ["table/one/2-aggregate(kind,id)", "table/one/1-aggregate(k)"]


def test_operators_are_named_and_described_as_flinks(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    nodes = inserted(env, t_env, "INSERT INTO one SELECT kind, COUNT(*) FROM bids WHERE id > 1 GROUP BY kind")
    names = [node.name.partition("[")[0] for node in nodes]
    assert names == ["Source: bids", "Calc", "GroupAggregate", "Calc", "ColumnsToRows", "Sink: one"]
    assert nodes[1].description == "Calc(select=[kind], where=[id > 1])"
    assert nodes[2].description == "GroupAggregate(groupBy=[kind], select=[kind, COUNT(*)])"
    assert nodes[-1].uid == "table/sink/one"


def test_a_chain_goes_from_the_source_to_what_needs_keys(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    inserted(env, t_env, "INSERT INTO one SELECT kind, COUNT(*) FROM bids WHERE id > 1 GROUP BY kind")
    first, second = chains_of(env)
    assert first.startswith("Source: bids")
    assert second.startswith("GroupAggregate")
    assert second.endswith("Sink: one")


def test_watermarks_belong_to_the_source_even_where_nothing_is_chained(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    env.disable_operator_chaining()
    stream = t_env.to_data_stream(t_env.sql_query("SELECT kind, at FROM bids"))
    stream.print()
    assert "WatermarkAssigner" in chains_of(env)[0]


@pytest.mark.parametrize(
    ("query", "parallelism"),
    [
        ("SELECT kind, id FROM bids", 2),
        ("VALUES ('a', CAST(1 AS BIGINT))", 1),
        ("SELECT MAX(kind), COUNT(*) FROM bids", 1),
        ("SELECT kind, COUNT(*) FROM bids GROUP BY kind", 2),
    ],
)
def test_a_sink_has_the_parallelism_of_what_it_writes(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, query: str, parallelism: int
) -> None:
    assert inserted(env, t_env, f"INSERT INTO one {query}")[-1].parallelism == parallelism


def test_changes_reach_a_sink_of_another_parallelism_by_its_primary_key(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    query = "SELECT kind, COUNT(*) FROM bids GROUP BY kind"
    connector = "'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json', "
    connector += "'value.format' = 'json', 'sink.parallelism' = '3'"
    declare(t_env, "wide", "kind STRING, n BIGINT, PRIMARY KEY (kind) NOT ENFORCED", connector)
    inserted(env, t_env, f"INSERT INTO wide {query}")
    assert [edge.partitioner.ship_strategy for edge in job_of(env).vertices[1].operators[-1].edges] == ["HASH"]
    declare(t_env, "keyless", "kind STRING, n BIGINT", "'print', 'sink.parallelism' = '3'")
    with pytest.raises(ProgramError, match="requires a primary key"):
        inserted(env, t_env, f"INSERT INTO keyless {query}")


def test_a_table_that_becomes_two_streams_has_a_source_with_a_uid_for_each(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    for _ in range(2):
        t_env.to_data_stream(t_env.from_path("bids")).print()
    nodes = env.get_stream_graph().nodes
    assert [node.uid for node in nodes if node.source is not None] == ["table/source/bids", "table/source/bids-2"]


def test_the_stream_of_a_query_has_event_time_and_watermarks(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    stream = t_env.to_data_stream(t_env.sql_query("SELECT id, at FROM bids WHERE id <> 2"))
    assert sorted(results_of(stream.map(lambda row: row.at.second))) == [1, 3]
