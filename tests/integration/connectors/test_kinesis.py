"""Streams of Kinesis as sources and sinks, against a server of moto: what is there counts once, whatever becomes of the
shards and of the job."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import SimpleStringSchema, Types, WatermarkStrategy
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.connectors.kinesis import (
    FlinkKinesisConsumer,
    KinesisFirehoseSink,
    KinesisStreamsSink,
    PartitionKeyGenerator,
)
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.errors import ConnectionFailedError, FinalOperationError
from tests.integration.engine.collecting import Collected, collecting, environment
from tests.support.kinesis_server import KinesisServer

_numbers = itertools.count()
USERS = [f"u{number}" for number in range(7)]


@pytest.fixture(scope="module")
def server() -> Iterator[KinesisServer]:
    with KinesisServer() as server:
        yield server


@pytest.fixture
def stream(server: KinesisServer) -> str:
    """A stream of three shards."""
    name = f"clicks-{next(_numbers)}"
    server.client().create_stream(StreamName=name, ShardCount=3)
    return name


def put(server: KinesisServer, stream: str, numbers: range) -> None:
    """Put the record "user number" for each number."""
    records = [(USERS[number % len(USERS)], number) for number in numbers]
    for first in range(0, len(records), 500):
        part = records[first : first + 500]
        entries = [{"Data": f"{user} {number}".encode(), "PartitionKey": user} for user, number in part]
        assert not server.client().put_records(StreamName=stream, Records=entries)["FailedRecordCount"]


class Sequence(KeyedProcessFunction):
    """(user, how many before, number)"""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        count = self._count.value() or 0
        self._count.update(count + 1)
        yield value[0], count, int(value[1])


def counting(
    env: StreamExecutionEnvironment, server: KinesisServer, stream: str, collected: Collected, **properties: str
) -> None:
    defaults = {
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.shard.discovery.intervalmillis": "1",
        "flink.shard.getrecords.intervalmillis": "1",
        "flink.shard.getrecords.maxrecordcount": "97",
    }
    source = FlinkKinesisConsumer(stream, SimpleStringSchema(), {**server.properties, **defaults, **properties})
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "clicks")
    pairs = lines.map(lambda line: tuple(line.split(" ")), Types.TUPLE([Types.STRING(), Types.STRING()]))
    pairs.key_by(lambda pair: pair[0]).process(Sequence()).uid("count").sink_to(collected.sink())


def run(server: KinesisServer, stream: str, folder: Path | None, minicluster: bool, **properties: str) -> list[Any]:
    """What a job that ends when it has read what is there gives."""
    target = {"execution__target": "minicluster"} if minicluster else {}
    with collecting() as collected:
        env = environment(
            folder, execution__trigger="available-now", flinkish__epoch__max_records_per_source=150, **target
        )
        counting(env, server, stream, collected, **properties)
        env.execute("clicks")
        return collected.rows["out"]


def check(found: list[Any], numbers: range) -> None:
    """Each number once, and those of each user in order."""
    assert Counter(number for _, _, number in found) == Counter(numbers)
    of_users = defaultdict(list)
    for user, count, number in sorted(found, key=lambda row: row[:2]):
        of_users[user].append(number)
        assert count == len(of_users[user]) - 1
    assert all(numbers == sorted(numbers) for numbers in of_users.values())


def reshard(server: KinesisServer, stream: str) -> None:
    """Split the first open shard, and merge two others."""
    client = server.client()
    shards = [
        shard
        for shard in client.list_shards(StreamName=stream)["Shards"]
        if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
    ]
    first, *_, before, last = sorted(shards, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))
    middle = (int(first["HashKeyRange"]["StartingHashKey"]) + int(first["HashKeyRange"]["EndingHashKey"])) // 2
    client.merge_shards(StreamName=stream, ShardToMerge=before["ShardId"], AdjacentShardToMerge=last["ShardId"])
    client.split_shard(StreamName=stream, ShardToSplit=first["ShardId"], NewStartingHashKey=str(middle))


def test_records_keep_their_order_although_shards_are_split_and_merged(server: KinesisServer, stream: str) -> None:
    for step in range(3):
        put(server, stream, range(300 * step, 300 * step + 300))
        reshard(server, stream)
    put(server, stream, range(900, 1_000))
    check(run(server, stream, None, minicluster=True), range(1_000))


def test_a_job_goes_on_behind_what_it_has_read_also_in_new_shards(
    spark: SparkSession, server: KinesisServer, stream: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(server, stream, range(400))
    found = run(server, stream, tmp_path / "job", minicluster=False)
    check(found, range(400))
    put(server, stream, range(400, 600))
    reshard(server, stream)
    put(server, stream, range(600, 700))
    caplog.clear()
    found += run(server, stream, tmp_path / "job", minicluster=False)
    check(found, range(700))
    assert "is not kept any more" not in caplog.text
    server.trim(stream)
    put(server, stream, range(700, 800))
    found += run(server, stream, tmp_path / "job", minicluster=False)
    check(found, range(800))
    assert "the last record that was read" in caplog.text and "is not kept any more" in caplog.text
    client = server.client()
    client.delete_stream(StreamName=stream)
    time.sleep(0.01)
    client.create_stream(StreamName=stream, ShardCount=3)
    with pytest.raises(FinalOperationError, match="is not the one that the job has read"):
        run(server, stream, tmp_path / "job", minicluster=False)


@pytest.mark.parametrize("initial", ["LATEST", "AT_TIMESTAMP"])
def test_a_source_begins_where_its_properties_say(server: KinesisServer, stream: str, initial: str) -> None:
    put(server, stream, range(100))
    # moto keeps times in ms, and its own time is told in seconds
    time.sleep(1.1)
    properties = {"flink.stream.initpos": initial}
    if initial == "AT_TIMESTAMP":
        properties["flink.stream.initpos.timestamp"] = str(time.time())
        put(server, stream, range(100, 150))
        check(run(server, stream, None, minicluster=True, **properties), range(100, 150))
        return
    with collecting() as collected:
        env = environment(None, execution__target="minicluster")
        counting(env, server, stream, collected, **properties)
        client = env.execute_async("clicks")
        # the source has begun when it has asked for records
        deadline = time.monotonic() + 60
        number = 100
        while len(collected.rows["out"]) < 5 and time.monotonic() < deadline:
            put(server, stream, range(number, number + 1))
            number += 1
            time.sleep(0.05)
        client.cancel().result(60)
    numbers = {row[2] for row in collected.rows["out"]}
    assert len(numbers) >= 5 and min(numbers) >= 100


@pytest.mark.parametrize(
    ("properties", "kind", "said"),
    [
        ({"aws.endpoint": "http://127.0.0.1:9"}, ConnectionFailedError, "AWS does not answer"),
        ({}, FinalOperationError, "a stream that exists"),
    ],
)
def test_a_source_that_cannot_begin_says_who_must_act(
    server: KinesisServer, properties: dict[str, str], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        run(server, "no-such-stream", None, True, **properties)


def test_a_sink_puts_each_record_with_its_key(server: KinesisServer, stream: str) -> None:
    env = environment(None, execution__target="minicluster")
    values = [f"u{number % 5} {number}" for number in range(1_200)]
    key = PartitionKeyGenerator.of(lambda line: line.split(" ")[0])
    builder = KinesisStreamsSink.builder().set_stream_name(stream).set_serialization_schema(SimpleStringSchema())
    builder.set_partition_key_generator(key).set_kinesis_client_properties(server.properties).set_max_batch_size(77)
    env.from_collection(values, Types.STRING()).sink_to(builder.build())
    env.execute("put")
    client, found = server.client(), []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        arguments = {"StreamName": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        found += client.get_records(ShardIterator=client.get_shard_iterator(**arguments)["ShardIterator"])["Records"]
    assert sorted(record["Data"].decode() for record in found) == sorted(values)
    assert all(record["Data"].decode().startswith(f"{record['PartitionKey']} ") for record in found)


def test_a_sink_of_firehose_delivers_what_it_is_given(server: KinesisServer) -> None:
    name, bucket = f"delivery-{next(_numbers)}", f"bucket-{next(_numbers)}"
    server.client("s3").create_bucket(Bucket=bucket)
    target = {"RoleARN": "arn:aws:iam::123456789012:role/x", "BucketARN": f"arn:aws:s3:::{bucket}"}
    server.client("firehose").create_delivery_stream(DeliveryStreamName=name, S3DestinationConfiguration=target)
    env = environment(None, execution__target="minicluster")
    builder = KinesisFirehoseSink.builder().set_delivery_stream_name(name)
    builder.set_serialization_schema(SimpleStringSchema()).set_firehose_client_properties(server.properties)
    env.from_collection([json.dumps({"n": n}) + "\n" for n in range(50)], Types.STRING()).sink_to(builder.build())
    env.execute("deliver")
    client = server.client("s3")
    texts = [
        client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read().decode()
        for one in client.list_objects_v2(Bucket=bucket)["Contents"]
    ]
    assert sorted(json.loads(line)["n"] for line in "".join(texts).splitlines()) == list(range(50))


def test_a_sink_whose_stream_is_not_there_says_so(server: KinesisServer) -> None:
    env = environment(None, execution__target="minicluster")
    builder = KinesisStreamsSink.builder().set_stream_name("none").set_serialization_schema(SimpleStringSchema())
    builder.set_partition_key_generator(PartitionKeyGenerator.random())
    env.from_collection(["a"], Types.STRING()).sink_to(builder.set_kinesis_client_properties(server.properties).build())
    with pytest.raises(FinalOperationError, match="a stream that exists"):
        env.execute("put")
