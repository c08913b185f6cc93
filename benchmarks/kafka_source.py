"""The throughput of a Kafka source: its reader in one process, epoch by epoch, and, if Spark's Kafka package is given,
Spark's connector followed by a Python worker.

    python -m benchmarks.kafka_source [--records N] [--compare PROPERTY=VALUE] [--spark MASTER ... --kafka-jars JAR,JAR]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.core.source import SplitRange
from tests.support.kafka_broker import KafkaBroker

TOPIC, PARTITIONS = "clicks", 2


def main() -> None:
    """Fill a topic, read it, print records per second."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_source", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a record")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--compare", default="", help="a property of the source; runs with and without it take turns")
    parser.add_argument("--kafka-jars", default="", help="of spark-sql-kafka-0-10 and what it depends on")
    parser.add_argument("--spark", nargs="*", default=[], help="masters such as local[1] to compare with")
    options = parser.parse_args()
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        fill(broker.bootstrap_servers, options.records, options.size)
        for run in ("first", "second"):
            for given in dict.fromkeys(["", options.compare]):
                counted = read(broker.bootstrap_servers, options.epochs, given)
                tell(f"reader, {run} run {given}".rstrip(), options.records, *counted)
        print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
        for master in options.spark:
            tell(
                f"Spark, {master}",
                options.records,
                *read_with_spark(broker.bootstrap_servers, master, options.kafka_jars),
            )


def fill(servers: str, records: int, size: int) -> None:
    """Write records evenly to all partitions."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
    for index in range(records):
        value = f'{{"index": {index}, "user": "user-{index % 1000}"}}'.ljust(size)
        produce(producer, TOPIC, value, index % PARTITIONS)
        if index % 1000 == 0:
            producer.poll(0)
    producer.flush(120)


def produce(producer: Producer, topic: str, value: str, partition: int) -> None:
    """Send one record, and wait while the producer's queue is full."""
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.1)


def read(servers: str, epochs: int, given: str) -> tuple[int, float, float]:
    """Records, seconds, and CPU seconds of this process, in that many epochs; partitions are read side by side.
    ``given`` is a property as KEY=VALUE, or empty."""
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(TOPIC)
    if given:
        builder = builder.set_property(*given.split("=", 1))
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    enumerator, reader = source.create_enumerator(()), source.create_reader()
    begin, begin_cpu, count = time.perf_counter(), time.process_time(), 0
    splits = enumerator.discover(())
    ends = {split.id: enumerator.end_of(split, 0)[0] or 0 for split in splits}
    for epoch in range(epochs):
        ranges = [
            SplitRange(split, ends[split.id] * epoch // epochs, ends[split.id] * (epoch + 1) // epochs)
            for split in splits
        ]
        reader.open(ranges, 10_000)
        running = [reader.read(entry, 10_000) for entry in ranges]
        while running:
            for batches in list(running):
                batch = next(batches, None)
                if batch is None:
                    running.remove(batches)
                else:
                    count += len(batch.values)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    enumerator.close()
    reader.close()
    return count, seconds, cpu


def read_with_spark(servers: str, master: str, jars: str) -> tuple[int, float, float]:
    """The same with Spark's connector: the second of two runs in one session. CPU is not measured."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tests.support.spark_session import start_session

    schema = SimpleStringSchema()

    def counts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = 0
        for batch in batches:
            count += len(schema.deserialize_batch(batch.column("value").to_pylist()))
            batch.column("timestamp").to_pylist()
        yield pa.RecordBatch.from_pydict({"count": [count]})

    with TemporaryDirectory() as folder:
        session = start_session(Path(folder), master, {"spark.jars": jars})
        try:
            for _ in range(2):
                begin = time.perf_counter()
                frame = session.read.format("kafka").option("kafka.bootstrap.servers", servers)
                frame = frame.option("subscribe", TOPIC).load()
                frame = frame.selectExpr("value", "unix_millis(timestamp) AS timestamp")
                rows: list[Any] = frame.mapInArrow(counts, "count BIGINT").collect()
                seconds = time.perf_counter() - begin
            return sum(row["count"] for row in rows), seconds, 0.0
        finally:
            session.stop()


def tell(what: str, expected: int, count: int, seconds: float, cpu: float) -> None:
    """Print one line of the output."""
    assert count == expected, (count, expected)
    print(f"{what}: {count / seconds:,.0f} records/s ({seconds:.2f} s, {cpu:.2f} s of CPU)", flush=True)


if __name__ == "__main__":
    main()
