"""Names are where PyFlink has them, and none of them needs Spark or a driver to be imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BLOCK = """
import sys
for name in ("pyspark", "delta", "confluent_kafka", "psycopg", "pymysql", "pandas"):
    sys.modules[name] = None
"""


@pytest.mark.parametrize(
    "line",
    [
        "from flinkish.datastream.connectors.base import DeliveryGuarantee, Sink, Source",
        "from flinkish.datastream.connectors.kafka import KafkaSource, KafkaSink, KafkaOffsetsInitializer, "
        "KafkaOffsetResetStrategy, KafkaTopicPartition, KafkaRecordSerializationSchema, KafkaTopicSelector",
        "from flinkish.datastream.connectors.file_system import FileSource, FileSink, StreamFormat, OutputFileConfig, "
        "RollingPolicy, BucketAssigner",
        "from flinkish.datastream.connectors.jdbc import JdbcSink, JdbcConnectionOptions, JdbcExecutionOptions",
        "from flinkish.datastream.connectors.number_seq import NumberSequenceSource",
        "from flinkish.datastream.connectors.datagen import DataGeneratorSource",
        "from flinkish.datastream.connectors.delta import DeltaSource, DeltaSink",
        "from flinkish.datastream.connectors.spark import SparkSource, FunctionSink",
    ],
)
def test_names_are_at_pyflinks_paths(line: str) -> None:
    exec(line, {})


def test_definitions_import_without_spark_and_drivers() -> None:
    modules = (
        "generated results spark frame_sinks columns hybrid_source paged_source jdbc.sink jdbc.source kafka.source "
        "kafka.sink kinesis.source kinesis.sink file_system.source file_system.sink"
    ).split()
    program = _BLOCK + "\n".join(f"import flinkish.connectors.{module}" for module in modules)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
