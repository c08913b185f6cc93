"""The servers that the integration tests rely on are real, keep what they were given, and come back after a stop."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pymysql
import pytest
from pyspark.sql import SparkSession

from tests.support.kafka_broker import KafkaBroker
from tests.support.mariadb import MariadbServer
from tests.support.postgres import PostgresServer


def test_a_topic_gives_back_what_was_produced(kafka: KafkaBroker) -> None:
    kafka.create_topic("servers-round-trip", partitions=3)
    kafka.produce("servers-round-trip", ["a", "b"], keys=["k", None], partition=2, timestamp_ms=1_000)
    records = kafka.consume("servers-round-trip")
    assert [(r.partition, r.offset, r.key, r.value, r.timestamp_ms) for r in records] == [
        (2, 0, b"k", b"a", 1_000),
        (2, 1, None, b"b", 1_000),
    ]


@pytest.mark.parametrize(
    "ending", [pytest.param("stop", marks=pytest.mark.slow), pytest.param("kill", marks=pytest.mark.nightly)]
)
def test_the_broker_keeps_topics_and_address_over_an_end_and_a_start(kafka: KafkaBroker, ending: str) -> None:
    topic, address = f"servers-{ending}", kafka.bootstrap_servers
    kafka.create_topic(topic)
    kafka.produce(topic, ["before"])
    getattr(kafka, ending)()
    assert not kafka.running
    kafka.start()
    kafka.produce(topic, ["after"])
    assert kafka.bootstrap_servers == address
    assert [record.value for record in kafka.consume(topic)] == [b"before", b"after"]


def test_each_test_gets_an_empty_postgres_database(postgres: PostgresServer) -> None:
    first, second = postgres.create_database(), postgres.create_database()
    postgres.query(first, "create table sums (name text primary key, total bigint)")
    postgres.query(first, "insert into sums values (%s, %s)", ("a", 3))
    assert postgres.query(first, "select * from sums") == [("a", 3)]
    assert postgres.query(second, "select count(*) from pg_tables where schemaname = 'public'") == [(0,)]


@pytest.mark.parametrize(
    "ending", [pytest.param("stop", marks=pytest.mark.slow), pytest.param("kill", marks=pytest.mark.nightly)]
)
def test_mariadb_keeps_commits_and_address_over_an_end_and_a_start(mariadb: MariadbServer, ending: str) -> None:
    uri, other = mariadb.create_database(), mariadb.create_database()
    mariadb.query(uri, "create table kept as select 1 as n")
    getattr(mariadb, ending)()
    with pytest.raises(pymysql.err.OperationalError):
        mariadb.query(uri, "select 1")
    mariadb.start()
    assert mariadb.query(uri, "select n from kept") == [(1,)]
    assert mariadb.query(other, "show tables") == []


@pytest.mark.parametrize(
    "ending", [pytest.param("stop", marks=pytest.mark.slow), pytest.param("kill", marks=pytest.mark.nightly)]
)
def test_postgres_keeps_commits_and_address_over_an_end_and_a_start(postgres: PostgresServer, ending: str) -> None:
    uri = postgres.create_database()
    postgres.query(uri, "create table kept as select 1 as n")
    with psycopg.connect(uri, autocommit=True) as open_connection:
        getattr(postgres, ending)()
        with pytest.raises(psycopg.OperationalError):
            open_connection.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        postgres.query(uri, "select 1")
    postgres.start()
    assert postgres.query(uri, "select n from kept") == [(1,)]


@pytest.mark.nightly
def test_spark_reads_and_writes_delta(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(5).write.format("delta").save(str(tmp_path / "table"))
    spark.range(5, 8).write.format("delta").mode("append").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 8
    assert spark.sql(f"describe history delta.`{tmp_path / 'table'}`").count() == 2


def test_python_workers_import_this_checkout(spark: SparkSession) -> None:
    def imported(_: int) -> str:
        import flinkish.errors

        return flinkish.errors.__name__

    assert spark.sparkContext.parallelize([1], 1).map(imported).collect() == ["flinkish.errors"]
