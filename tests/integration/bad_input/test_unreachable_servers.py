"""Kafka or a database that is away: said in bounded time, by address, and nothing is lost until it is back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from flinkish.common import Row, Types
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.errors import ConnectionFailedError, OperationError, UserCodeError
from tests.integration.bad_input.job import COUNT, PER_EPOCH, Job, event, pair
from tests.support.kafka_broker import KafkaBroker

ROW = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])
#: what a client waits for at most, with all its attempts, and an engine on a busy machine
BOUND_S = 120


#: fixture of a server -> its name in messages, and what makes the table (and a user with the password of the job)
TABLES = {
    "postgres": ("PostgreSQL", ['CREATE TABLE counts ("user" TEXT PRIMARY KEY, n BIGINT)']),
    "mariadb": (
        "MySQL",
        [
            "CREATE TABLE counts (user VARCHAR(20) PRIMARY KEY, n BIGINT)",
            "GRANT ALL ON *.* TO guarded@127.0.0.1 IDENTIFIED BY 'secret'",
        ],
    ),
}


@pytest.fixture(params=TABLES)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    found = request.getfixturevalue(request.param)
    yield found
    found.start()


@pytest.fixture
def database(server: Any, request: pytest.FixtureRequest) -> str:
    """The URL of a database with a table."""
    uri: str = server.create_database()
    for statement in TABLES[request.node.callspec.params["server"]][1]:
        server.query(uri, statement)
    return uri


@pytest.fixture
def topic(kafka: KafkaBroker) -> Iterator[str]:
    kafka.create_topic("bad-input")
    kafka.produce("bad-input", [json.dumps(event(index)) for index in range(COUNT)])
    yield "bad-input"
    kafka.start()


def fails_half_way(record: dict[str, Any]) -> Any:
    if record["index"] == 2 * PER_EPOCH:
        raise RuntimeError("half way")
    return pair(record)


@pytest.mark.nightly
@pytest.mark.timeout(BOUND_S)
def test_a_database_that_is_away_is_named_and_gets_each_row_once_when_it_is_back(
    job: Job, server: Any, database: str, request: pytest.FixtureRequest
) -> None:
    url = database.replace("tester@", "guarded@")
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).with_password("secret").build()
    once = JdbcExecutionOptions.builder().with_max_retries(1).build()
    parts: dict[str, Any] = {
        "sink": JdbcSink.upsert("counts", ["user"], ROW, options, once),
        "after": lambda pair: Row(*pair),
    }
    with pytest.raises(UserCodeError, match="half way"):
        job.run(to_pair=fails_half_way, **parts)
    half = dict(server.query(database, "SELECT * FROM counts"))
    assert sum(half.values()) == 2 * PER_EPOCH
    after_epoch_2 = Counter(event(index)["user"] for index in range(3 * PER_EPOCH))

    server.stop()
    with pytest.raises(OperationError) as caught:
        job.run(**parts)
    message = str(caught.value)
    assert type(caught.value) is ConnectionFailedError, message
    assert message.startswith("the database cannot be reached (2 attempts): ")
    label, _ = TABLES[request.node.callspec.params["server"]]
    assert f"{label} 127.0.0.1:{server.port}/" in message and "epoch 2" in message and "'sink'" in message
    assert "when the database answers again, start the job again" in message
    assert "secret" not in message

    server.start()
    # A subtask that was in its last attempt when the other one failed may still reach the database: Spark gives Python
    # two seconds to end (docs/semantics.md). Its marker keeps its rows from being counted again by the next run.
    found = dict(server.query(database, "SELECT * FROM counts"))
    assert all(found[user] in (half[user], after_epoch_2[user]) for user in after_epoch_2), found
    job.run(**parts)
    counts = dict(server.query(database, "SELECT * FROM counts"))
    assert counts == Counter(event(index)["user"] for index in range(COUNT))


@pytest.mark.nightly
@pytest.mark.timeout(BOUND_S)
def test_a_kafka_that_is_away_is_named_and_is_read_on_where_the_job_stood_when_it_is_back(
    job: Job, kafka: KafkaBroker, topic: str
) -> None:
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    builder = builder.set_value_only_deserializer(SimpleStringSchema())
    builder = builder.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    parts: dict[str, Any] = {
        "source": builder.set_bounded(KafkaOffsetsInitializer.latest()).build(),
        "settings": {"flinkish.epoch.max-records-per-source": str(PER_EPOCH)},
    }
    with pytest.raises(UserCodeError, match="half way"):
        job.run(to_pair=lambda text: fails_half_way(json.loads(text)), **parts)
    assert len(job.rows) == 2 * PER_EPOCH

    kafka.stop()
    with pytest.raises(OperationError) as caught:
        job.run(to_pair=lambda text: pair(json.loads(text)), **parts)
    message = str(caught.value)
    assert type(caught.value) is ConnectionFailedError, message
    assert message.startswith(f"Kafka cannot be reached at {kafka.bootstrap_servers} (")
    assert "start the broker or correct set_bootstrap_servers(...)" in message
    assert len(job.rows) == 2 * PER_EPOCH

    kafka.start()
    job.run(to_pair=lambda text: pair(json.loads(text)), **parts)
    job.check_complete()
