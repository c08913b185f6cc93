"""What a source promises and only Spark, or a broker, can break: one instance of a subtask, bounds in bytes."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.connectors.spark import DeltaSource
from flinkish.datastream import MapFunction, RuntimeContext
from flinkish.minicluster import MiniCluster
from flinkish.testing import TestingSink
from tests.integration.engine.collecting import collecting, environment
from tests.integration.matrix.records import by_part
from tests.integration.matrix.sources import ROW, SOURCES
from tests.support.kafka_broker import KafkaBroker
from tests.unit.minicluster.programs import environment as local_environment
from tests.unit.minicluster.programs import job_of


class Instance(MapFunction):
    """Record -> (instance of this function, its process, its subtask, how many there are, record)."""

    def __init__(self, source: str) -> None:
        self._source = source

    def open(self, runtime_context: RuntimeContext) -> None:
        subtasks = runtime_context.get_index_of_this_subtask(), runtime_context.get_number_of_parallel_subtasks()
        self._who = (uuid.uuid4().hex, os.getpid(), *subtasks)

    def map(self, value: Any) -> tuple[Any, ...]:
        return (*self._who, SOURCES[self._source].record_of(value))


@pytest.mark.parametrize("kind", [pytest.param("text", marks=pytest.mark.nightly), "delta"])
def test_a_source_of_parallelism_one_is_one_instance_of_one_subtask_whatever_the_number_of_cores_and_files(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    place = SOURCES[kind].make_input(tmp_path / "in", None)
    # all files in one epoch: each of them could be a task of Spark's
    source = DeltaSource(place, ROW, bounded=True) if kind == "delta" else SOURCES[kind].create(place, "")
    with collecting() as collected:
        env = environment(tmp_path / "job")
        read = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").set_parallelism(1)
        read.map(Instance(kind)).set_parallelism(1).sink_to(collected.sink())
        env.execute("one instance")
        found = collected.rows["out"]
    assert sorted(record for *_, record in found) == by_part()
    assert len({(instance, pid) for instance, pid, *_ in found}) == 1
    assert {(subtask, of) for _, _, subtask, of, _ in found} == {(0, 1)}


def test_an_epoch_of_long_kafka_records_keeps_the_bound_in_bytes(kafka: KafkaBroker) -> None:
    record_bytes, records, most = 10_000, 400, 50
    topic = f"long-{uuid.uuid4().hex}"
    kafka.create_topic(topic, partitions=2)
    for partition in range(2):
        kafka.produce(topic, ["x" * record_bytes] * (records // 2), partition=partition)
    source = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    source = source.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
    env, sink = local_environment(2), TestingSink()
    env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "long").sink_to(sink)
    MiniCluster(job_of(env, max_bytes_per_epoch=most * record_bytes)).run()
    epochs: dict[int, int] = {}
    for (_, epoch), values in sink.commits.items():
        epochs[epoch] = epochs.get(epoch, 0) + len(values)
    assert sum(epochs.values()) == records
    assert max(epochs.values()) <= most
