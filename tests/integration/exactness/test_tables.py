"""Queries with memory write each result once into Kafka and Delta, wherever in an epoch the job fails and goes on.

The program, its queries and what must come are those of `tests/unit/table/test_exactly_once_tables.py`, which has the
sinks that need no server.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.runtime.phases import Phase
from flinkish.table import DataTypes, StreamTableEnvironment
from flinkish.table.udf import udf
from flinkish.testing import ProgramTestHarness
from tests.integration.engine.collecting import environment
from tests.support.kafka_broker import KafkaBroker
from tests.unit.table.test_exactly_once_tables import (
    GROUPS,
    VALUES,
    WINDOWS,
    groups,
    program,
    run_with_crashes,
    windows,
)

_numbers = count()
UPSERT = """CREATE TABLE results (k STRING, total BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH (
    'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', {kafka})"""
APPEND = """CREATE TABLE results (k STRING, w TIMESTAMP(3), total BIGINT) WITH (
    'connector' = 'kafka', 'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',
    'sink.transactional-id-prefix' = '{topic}', {kafka})"""
NIGHTLY = (Phase.LEVEL_PROCESSED, Phase.STATE_WRITTEN, Phase.SINK_COMMITTED, Phase.METADATA_COMMITTED)
PHASES = [Phase.EPOCH_PREPARED, *(pytest.param(phase, marks=pytest.mark.nightly) for phase in NIGHTLY)]


def written(kafka: KafkaBroker, topic: str, keyed: bool) -> Counter[tuple[object, ...]]:
    """The rows of a topic: all of them, or the last one of each key."""
    records = kafka.consume(topic, read_committed=True)
    values = {record.key: record.value for record in records}.values() if keyed else [one.value for one in records]
    return Counter(tuple(json.loads(value).values()) for value in values if value is not None)


@pytest.mark.parametrize("phase", PHASES, ids=str)
@pytest.mark.parametrize("keyed", [True, False], ids=["GROUP BY into upsert-kafka", "a window into Kafka"])
def test_a_topic_gets_each_result_once_although_every_epoch_fails_at_a_phase(
    keyed: bool, phase: Phase, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = f"exactly-once-table-{next(_numbers)}"
    kafka.create_topic(topic)
    options = f"'topic' = '{topic}', 'properties.bootstrap.servers' = '{kafka.bootstrap_servers}'"
    declaration = (UPSERT if keyed else APPEND).replace("{kafka}", options).replace("{topic}", topic)
    run_with_crashes(ProgramTestHarness(program(tmp_path, declaration, GROUPS if keyed else WINDOWS)), phase)
    assert written(kafka, topic, keyed) == (groups() if keyed else windows())


@pytest.mark.nightly
def test_a_group_by_into_a_delta_table_is_merged_once_although_a_function_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(5):
        rows = [{"k": key, "v": value} for key, value in VALUES[2 * number : 2 * number + 2]]
        (tmp_path / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    marks = str(tmp_path)

    @udf(result_type=DataTypes.BIGINT())
    def failing_once(value: int) -> int:
        mark = f"{marks}/failed at {value}"
        if value in (3, 7) and not os.path.exists(mark):
            Path(mark).touch()
            raise ValueError("the function has failed, as the test wants it")
        return value

    env = environment(
        parallelism__default=2,
        flinkish__epoch__max_records_per_source=2,
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__attempts="5",
        restart_strategy__fixed_delay__delay="10 ms",
    )
    t_env = StreamTableEnvironment.create(env)
    t_env.create_temporary_function("failing_once", failing_once)
    t_env.execute_sql(
        f"CREATE TABLE t (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/in', "
        "'format' = 'json')"
    )
    t_env.execute_sql(
        "CREATE TABLE results (k STRING, total BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH "
        f"('connector' = 'delta', 'table-path' = '{tmp_path}/results')"
    )
    query = "SELECT k, SUM(failing_once(v)) AS total, COUNT(*) AS n FROM t GROUP BY k HAVING SUM(failing_once(v)) > 0"
    t_env.execute_sql(f"INSERT INTO results {query}").wait()
    assert len(list(tmp_path.glob("failed at *"))) == 2
    rows = spark.read.format("delta").load(f"{tmp_path}/results").collect()
    assert Counter((row.k, row.total, row.n) for row in rows) == groups()
