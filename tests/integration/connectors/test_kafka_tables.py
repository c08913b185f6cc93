"""Tables of Kafka topics as source and sink, on a real broker."""

from __future__ import annotations

import json
import time
from itertools import count

import pytest

from flinkish.common import Configuration, Row, Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import StreamTableEnvironment
from tests.support.kafka_broker import KafkaBroker
from tests.support.processes import wait_until

_numbers = count()


@pytest.mark.parametrize(("target", "guarantee"), [("minicluster", "at-least-once"), ("spark", "exactly-once")])
def test_a_program_reads_a_table_and_writes_another(
    kafka: KafkaBroker, request: pytest.FixtureRequest, target: str, guarantee: str
) -> None:
    configuration = Configuration()
    if target == "minicluster":
        configuration.set_string("execution.target", target)
    else:
        request.getfixturevalue("spark")
    began_ms = int(time.time() * 1_000)
    name = f"table-{next(_numbers)}"
    for topic in (name, f"{name}-out"):
        kafka.create_topic(topic)
    kafka.produce(name, [json.dumps({"id": n, "at": f"2026-01-31 12:00:0{n}"}) for n in range(3)])
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    server = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{kafka.bootstrap_servers}'"
    t_env.execute_sql(
        "CREATE TABLE clicks (id INT, `at` TIMESTAMP(3), WATERMARK FOR `at` AS `at` - INTERVAL '1' SECOND) "
        f"WITH ({server}, 'topic' = '{name}', 'format' = 'json', 'properties.group.id' = '{name}', "
        "'properties.auto.offset.reset' = 'earliest', 'properties.fetch.max.wait.ms' = '100')"
    )
    t_env.execute_sql(
        f"CREATE TABLE seconds (id BIGINT, s STRING) WITH ({server}, 'topic' = '{name}-out', 'value.format' = 'csv', "
        f"'value.csv.field-delimiter' = '|', 'sink.delivery-guarantee' = '{guarantee}', "
        f"'sink.transactional-id-prefix' = '{name}')"
    )
    seconds = t_env.to_data_stream(t_env.from_path("clicks")).map(
        lambda row: Row(row.id, f"{row['at']:%S}"), output_type=Types.ROW([Types.INT(), Types.STRING()])
    )
    result = t_env.from_data_stream(seconds).execute_insert("seconds")
    client = result.get_job_client()
    assert client is not None
    try:
        wait_until(lambda: len(kafka.consume(f"{name}-out", read_committed=True)) == 3, 60, "the rows are written")
    finally:
        client.cancel().result()
    written = kafka.consume(f"{name}-out", read_committed=True)
    assert [record.value for record in written] == [b'0|"00"', b'1|"01"', b'2|"02"']
    # as in Flink, where a table has no column for Kafka's timestamp, it is the time of writing and not the event time
    assert all(record.timestamp_ms >= began_ms for record in written)
