"""Tables of Kafka topics as source and sink, on a real broker."""

from __future__ import annotations

import json
import time
from itertools import count

import pytest

from flinkish.common import Configuration, Row, RowKind, Types
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


def _env() -> StreamExecutionEnvironment:
    configuration = Configuration().set_string("execution.target", "minicluster")
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)


def _declare(t_env: StreamTableEnvironment, broker: KafkaBroker, name: str, columns: str, options: str) -> None:
    """A table of a topic; ``options`` are those of its connector and formats, without quotes."""
    given = dict(part.split("=") for part in options.split())
    given |= {"properties.bootstrap.servers": broker.bootstrap_servers, "properties.fetch.max.wait.ms": "100"}
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in given.items())
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({listed})")


def test_metadata_and_keys_are_read_and_written(kafka: KafkaBroker) -> None:
    topic, t_env = f"table-{next(_numbers)}", StreamTableEnvironment.create(_env())
    kafka.create_topic(topic)
    columns = (
        "k_id BIGINT, word STRING, headers MAP<STRING, BYTES> METADATA, written TIMESTAMP_LTZ(3) METADATA FROM "
        "'timestamp', part BIGINT METADATA FROM 'partition' VIRTUAL, `offset` BIGINT METADATA VIRTUAL, "
        "topic STRING METADATA VIRTUAL, `timestamp-type` STRING METADATA VIRTUAL, "
        "at_local TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL"
    )
    options = (
        f"connector=kafka topic={topic} key.format=json key.fields=k_id key.fields-prefix=k_ value.format=json "
        "value.fields-include=EXCEPT_KEY scan.startup.mode=earliest-offset scan.bounded.mode=latest-offset"
    )
    _declare(t_env, kafka, "records", columns, options)
    t_env.execute_sql(
        "INSERT INTO records VALUES (7, 'a', MAP['h', ENCODE('x', 'UTF-8')], TO_TIMESTAMP_LTZ(1769860800500, 3)), "
        "(8, 'b', CAST(NULL AS MAP<STRING, BYTES>), TO_TIMESTAMP_LTZ(1769860801000, 3))"
    ).wait()
    written = kafka.consume(topic)
    assert [(one.key, one.value, one.timestamp_ms, one.headers) for one in written] == [
        (b'{"id":7}', b'{"word":"a"}', 1769860800500, (("h", b"x"),)),
        (b'{"id":8}', b'{"word":"b"}', 1769860801000, ()),
    ]
    t_env.get_config().set("table.local-time-zone", "Asia/Tokyo")
    query = "SELECT k_id, word, headers, part, `offset`, topic, `timestamp-type`, at_local FROM records WHERE k_id < 8"
    with t_env.execute_sql(query).collect() as rows:
        [row] = list(rows)
    assert [*row][:7] == [7, "a", {"h": b"x"}, 0, 0, topic, "CreateTime"]
    assert str(row[7]) == "2026-01-31 21:00:00.500000"


def test_the_changes_of_a_query_are_kept_by_key_in_a_topic(kafka: KafkaBroker) -> None:
    source, target, env = f"table-{next(_numbers)}", f"table-{next(_numbers)}", _env()
    t_env = StreamTableEnvironment.create(env)
    for topic in (source, target):
        kafka.create_topic(topic)
    bounded = "scan.startup.mode=earliest-offset scan.bounded.mode=latest-offset format=json"
    _declare(t_env, kafka, "words", "word STRING, n BIGINT", f"connector=kafka topic={source} {bounded}")
    keyed = f"connector=upsert-kafka topic={target} key.format=json value.format=json"
    _declare(t_env, kafka, "sums", "word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED", keyed)
    kafka.produce(
        source, [json.dumps({"word": word, "n": n, "more": []}) for word, n in (("a", 1), ("b", 2), ("a", 3))]
    )
    t_env.execute_sql("INSERT INTO sums SELECT word, SUM(n) FROM words GROUP BY word").wait()
    assert sorted((one.key, one.value) for one in kafka.consume(target)) == [
        (b'{"word":"a"}', b'{"word":"a","n":4}'),
        (b'{"word":"b"}', b'{"word":"b","n":2}'),
    ]
    # of each key the last change is written, and a deletion has no value
    row_type = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
    changes = [Row.of_kind(RowKind.UPDATE_BEFORE, "a", 4), Row.of_kind(RowKind.UPDATE_AFTER, "a", 5)]
    changes += [Row("d", 1), Row.of_kind(RowKind.DELETE, "d", 1)]
    t_env.from_changelog_stream(env.from_collection(changes, row_type)).execute_insert("sums").wait()
    assert sorted((one.key, one.value) for one in kafka.consume(target)[2:]) == [
        (b'{"word":"a"}', b'{"word":"a","n":5}'),
        (b'{"word":"d"}', None),
    ]
    # the topic is a table of rows, in which a record without a value deletes the row of its key
    kafka.produce(target, [b'{"word":"c","n":9}', None], [b'{"word":"c"}', b'{"word":"b"}'])
    read = f"{keyed} scan.bounded.mode=latest-offset"
    _declare(t_env, kafka, "table_of_sums", "word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED", read)
    with t_env.execute_sql("SELECT COUNT(*), SUM(n) FROM table_of_sums").collect() as rows:
        assert [[*row] for row in rows][-1] == [2, 14]
