"""The main job from a Kafka topic, by each engine: decode -> filter -> (user, 1) -> key by user -> running sum -> last
value of each user.

    python benchmarks/pipelines/kafka_programs.py ENGINE SERVERS TOPIC [--follow FILE] [--jars JAR,JAR]

Rule of this file: it is run as a file, and what it imports of this repository comes from the folder in PYTHONPATH, so
that the same program measures an earlier version. It reads from the earliest record to the end of the topic and prints
ONE line of JSON: the users and their clicks. With ``--follow`` it reads on for ever and writes a line (time in seconds,
clicks that the sink has) whenever they have become more.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pipelines.dict_sink import DictSink, delivered

PARALLELISM = 2
FIELDS = "user_id string, logged_in boolean, page string, ts long, agent string"
POLL_S = 0.005


def clicks_of(env: Any, options: argparse.Namespace, schema: Any) -> Any:
    """The stream of a topic, with its values decoded by a schema."""
    from flinkish.common import WatermarkStrategy
    from flinkish.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

    builder = KafkaSource.builder().set_bootstrap_servers(options.servers).set_topics(options.topic)
    builder = builder.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_value_only_deserializer(schema)
    if options.follow is None:
        builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
    return env.from_source(builder.build(), WatermarkStrategy.no_watermarks(), "clicks")


def environment(options: argparse.Namespace) -> Any:
    """An environment whose settings are flinkish's defaults, with a job directory of its own."""
    from flinkish.common import Configuration
    from flinkish.datastream import StreamExecutionEnvironment

    configuration = Configuration()
    configuration.set_string("flinkish.job.dir", tempfile.mkdtemp(prefix="flinkish-kafka-job-"))
    for name, value in (("spark.master", "local[2]"), ("spark.driver.memory", "2g"), ("spark.ui.enabled", "false")):
        configuration.set_string(name, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(PARALLELISM)


def count(pairs: Any) -> None:
    """Running sums per user, upserted into a dictionary."""
    pairs.key_by(lambda pair: pair[0]).sum(1).sink_to(DictSink())


def flinkish_rows(options: argparse.Namespace) -> None:
    """Texts, decoded by ``map(json.loads)``."""
    from flinkish.common import Types
    from flinkish.common.serialization import SimpleStringSchema

    env = environment(options)
    clicks = clicks_of(env, options, SimpleStringSchema()).map(json.loads)
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    count(clicks.filter(lambda click: click["logged_in"]).map(lambda click: (click["user_id"], 1), output_type=pair))
    env.execute("clicks")


def flinkish_json_row(options: argparse.Namespace) -> None:
    """Rows of a declared type."""
    from flinkish.common import Types
    from flinkish.datastream.formats.json import JsonRowDeserializationSchema

    types = {"string": Types.STRING, "boolean": Types.BOOLEAN, "long": Types.LONG}
    names, texts = zip(*(field.split() for field in FIELDS.split(", ")), strict=True)
    row = Types.ROW_NAMED(list(names), [types[text]() for text in texts])
    env = environment(options)
    clicks = clicks_of(env, options, JsonRowDeserializationSchema.builder().type_info(row).build())
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    count(clicks.filter(lambda click: click[1]).map(lambda click: (click[0], 1), output_type=pair))
    env.execute("clicks")


def spark(options: argparse.Namespace) -> None:
    """Spark's own count, with RocksDB, in update mode; one batch unless it follows."""
    import os
    import sys

    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.jars": options.jars,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    builder = SparkSession.builder.master("local[2]").appName("clicks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    read = session.readStream.format("kafka").option("kafka.bootstrap.servers", options.servers)
    texts = read.option("subscribe", options.topic).option("startingOffsets", "earliest").load()
    click = F.from_json(F.col("value").cast("string"), FIELDS).alias("click")
    counts = texts.select(click).select("click.*").where("logged_in").groupBy("user_id").count()

    def deliver(frame: Any, epoch: int) -> None:
        columns = [column.to_pylist() for column in frame.toArrow().columns]
        delivered.update(zip(*columns, strict=True))

    writer = counts.writeStream.outputMode("update").foreachBatch(deliver)
    writer = writer.option("checkpointLocation", tempfile.mkdtemp(prefix="spark-kafka-job-"))
    (writer.trigger(availableNow=True) if options.follow is None else writer).start().awaitTermination()


def loop(decode: Callable[[bytes], Any]) -> Callable[[argparse.Namespace], None]:
    """A loop of one process around confluent-kafka and a dictionary; nothing is distributed or fault-tolerant."""

    def run(options: argparse.Namespace) -> None:
        from confluent_kafka import Consumer, TopicPartition

        properties = {"bootstrap.servers": options.servers, "group.id": "loop", "fetch.queue.backoff.ms": 10}
        consumer = Consumer(properties)
        topic = consumer.list_topics(options.topic).topics[options.topic]
        parts = [TopicPartition(options.topic, number, 0) for number in topic.partitions]
        left = sum(consumer.get_watermark_offsets(part)[1] for part in parts)
        consumer.assign(parts)
        totals: dict[str, int] = {}
        while left:
            messages = consumer.consume(10_000, 0.1)
            left -= len(messages)
            for message in messages:
                click = decode(message.value())
                if click["logged_in"]:
                    totals[click["user_id"]] = totals.get(click["user_id"], 0) + 1
        delivered.update(totals)

    return run


def loop_msgspec(options: argparse.Namespace) -> None:
    """The loop with msgspec."""
    import msgspec

    loop(msgspec.json.Decoder(dict).decode)(options)


ENGINES = {
    "flinkish_rows": flinkish_rows,
    "flinkish_json_row": flinkish_json_row,
    "spark": spark,
    "loop_json": loop(json.loads),
    "loop_msgspec": loop_msgspec,
}


def clicks_so_far() -> int:
    """The clicks that the sink has: the sum of the last value of each user."""
    return sum(list(delivered.values()))  # a copy, since another thread adds to it


def write_what_comes(file: Path) -> None:
    """Write a line whenever the clicks have become more."""
    seen = 0
    with file.open("w", buffering=1) as lines:
        while True:
            clicks = clicks_so_far()
            if clicks > seen:
                print(time.time(), clicks, file=lines)
                seen = clicks
            time.sleep(POLL_S)


def main() -> None:
    """Run one engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("--follow", type=Path)
    parser.add_argument("--jars", default="")
    options = parser.parse_args()
    if options.follow is not None:
        threading.Thread(target=write_what_comes, args=(options.follow,), daemon=True).start()
    ENGINES[options.engine](options)
    print(json.dumps({"users": len(delivered), "clicks": clicks_so_far()}), flush=True)


if __name__ == "__main__":
    main()
