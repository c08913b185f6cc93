"""What builders of formats and connectors take and refuse, at the call: PyFlink's arguments, defaults and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Row, SimpleStringSchema
from flinkish.common.typeinfo import Types
from flinkish.core.source import SourceLimits
from flinkish.datastream.connectors.base import DeliveryGuarantee
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from flinkish.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from flinkish.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema, CsvSchema
from flinkish.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from flinkish.errors import ConfigurationError, ProgramError, UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from tests.support.documented import documented
from tests.support.split_reading import SplitReading
from tests.unit.minicluster.programs import environment, job_of

ROW = Types.ROW_NAMED(["a"], [Types.INT()])
SCHEMA = SimpleStringSchema()
CONNECTION = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("sqlite:////tmp/x").build()
EARLIEST = KafkaOffsetsInitializer.earliest()


def source() -> Any:
    return KafkaSource.builder().set_bootstrap_servers("host:1").set_value_only_deserializer(SCHEMA)


def serializer() -> Any:
    return KafkaRecordSerializationSchema.builder()


def sink() -> Any:
    made = serializer().set_topic("t").set_value_serialization_schema(SCHEMA).build()
    return KafkaSink.builder().set_bootstrap_servers("host:1").set_record_serializer(made)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "JSON, no type": (lambda: JsonRowSerializationSchema.builder().build(), TypeError, "Typeinfo should be set"),
    "JSON, no schema": (
        lambda: JsonRowDeserializationSchema.builder().json_schema(None),  # type: ignore[arg-type]
        TypeError,
        "json_schema is None",
    ),
    "CSV, no type": (lambda: CsvRowSerializationSchema.Builder(None), TypeError, "type_info"),  # type: ignore[arg-type]
    "CSV, no delimiter": (
        lambda: CsvRowDeserializationSchema.Builder(ROW).set_field_delimiter(None),  # type: ignore[arg-type]
        TypeError,
        "field delimiter is None",
    ),
    "CSV, no null": (
        lambda: CsvRowSerializationSchema.Builder(ROW).set_null_literal(None),  # type: ignore[arg-type]
        TypeError,
        "null literal is None",
    ),
    "CSV schema, separator": (lambda: CsvSchema.builder().set_column_separator("ab"), ValueError, "single char"),
    "CSV schema, escape": (lambda: CsvSchema.builder().set_escape_char(""), ValueError, "single char"),
    "CSV schema, quote": (lambda: CsvSchema.builder().set_quote_char("''"), ValueError, "single char"),
    "JDBC, batch of text": (
        lambda: JdbcExecutionOptions.builder().with_batch_size("5"),  # type: ignore[arg-type]
        TypeError,
        "batch size is '5'",
    ),
    "JDBC, retries": (
        lambda: JdbcExecutionOptions.builder().with_max_retries(-1).build(),
        ConfigurationError,
        "max_retries=-1",
    ),
    "JDBC, no options": (
        lambda: JdbcSink.sink("INSERT INTO t VALUES (?)", ROW, None),  # type: ignore[arg-type]
        TypeError,
        "jdbc_connection_options are None",
    ),
    "JDBC, no options of an upsert": (
        lambda: JdbcSink.upsert("t", ["a"], ROW, None),  # type: ignore[arg-type]
        TypeError,
        r"jdbc_connection_options are None.*JdbcSink\.upsert",
    ),
    "JDBC, a builder for options": (
        lambda: JdbcSink.upsert("t", ["a"], ROW, CONNECTION, JdbcExecutionOptions.builder()),  # type: ignore[arg-type]
        TypeError,
        "jdbc_execution_options are an instance of Builder",
    ),
    "JDBC, columns without names": (
        lambda: JdbcSink.upsert("t", ["f0"], Types.ROW([Types.INT()]), CONNECTION),
        ProgramError,
        r"have no names.*JdbcSink\.upsert into t.*ROW_NAMED",
    ),
    "topics twice": (lambda: source().set_topics("a").set_topics("b"), ConfigurationError, "said before"),
    "topics and pattern": (lambda: source().set_topics("a").set_topic_pattern("b"), ConfigurationError, "said before"),
    "pattern": (lambda: source().set_topic_pattern("("), ValueError, "topic pattern"),
    "a list of topics": (lambda: source().set_topics(["a"]), TypeError, "a topic is an instance of list"),
    "no topics": (lambda: source().set_topics(), ValueError, "no topics"),
    "partitions": (lambda: source().set_partitions({("a", 1)}), TypeError, "a partition is"),
    "starting offsets": (lambda: source().set_starting_offsets(5), TypeError, "starting offsets are"),
    "stopping offsets": (lambda: source().set_bounded(None), TypeError, "stopping offsets are None"),
    "deserializer": (lambda: source().set_value_only_deserializer(None), TypeError, "deserializer is None"),
    "property": (lambda: source().set_property("group.id", None), TypeError, "group.id is None"),
    "committed offsets of nobody": (
        lambda: source().set_topics("a").set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()).build(),
        ConfigurationError,
        "group.id is required",
    ),
    "a time before 1970": (lambda: KafkaOffsetsInitializer.timestamp(-1), ValueError, "timestamp is -1 ms"),
    "an offset below 0": (
        lambda: KafkaOffsetsInitializer.offsets({KafkaTopicPartition("a", 0): -5}),
        ValueError,
        "offset of a-0 is -5",
    ),
    "a reset by text": (
        lambda: KafkaOffsetsInitializer.committed_offsets("EARLIEST"),  # type: ignore[arg-type]
        TypeError,
        "reset strategy",
    ),
    "guarantee": (lambda: sink().set_delivery_guarantee("EXACTLY_ONCE"), TypeError, "delivery guarantee"),
    "long prefix": (lambda: sink().set_transactional_id_prefix("x" * 64_001), ValueError, "prefix is too long"),
    "serializer": (lambda: sink().set_record_serializer(SCHEMA), TypeError, "record serializer is"),
    "topic twice": (lambda: serializer().set_topic("a").set_topic("b"), ConfigurationError, "already set"),
    "topic and selector": (
        lambda: serializer().set_topic("a").set_topic_selector(str),
        ConfigurationError,
        "Topic selector already set",
    ),
    "value twice": (
        lambda: serializer().set_value_serialization_schema(SCHEMA).set_value_serialization_schema(SCHEMA),
        ConfigurationError,
        "Value serializer already set",
    ),
    "key twice": (
        lambda: serializer().set_key_serialization_schema(SCHEMA).set_key_serialization_schema(SCHEMA),
        ConfigurationError,
        "Key serializer already set",
    ),
    "no value": (lambda: serializer().set_value_serialization_schema(None), TypeError, "value schema is None"),
    "no topic": (lambda: serializer().set_topic(None), TypeError, "topic is None"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_argument_is_refused_when_it_is_given(name: str) -> None:
    call, kind, says = REFUSED[name]
    with pytest.raises(kind, match=says):
        call()


def test_arguments_have_pyflinks_names_and_defaults() -> None:
    options = JdbcExecutionOptions.builder().build()
    assert (options.get_batch_interval_ms(), options.get_batch_size(), options.get_max_retries()) == (0, 5000, 3)
    # no limit, as in Flink
    assert JdbcExecutionOptions.builder().with_batch_size(size=0).build().get_batch_size() == 0
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url="jdbc:sqlite:/tmp/x")
    connection = url.with_driver_name(driver_name="d").with_user_name(user_name="u").with_password(password="p").build()
    JdbcSink.sink(
        sql="INSERT INTO t VALUES (?)", type_info=ROW, jdbc_connection_options=connection, jdbc_execution_options=None
    )
    read = CsvRowDeserializationSchema.Builder(type_info=ROW).set_field_delimiter(delimiter=";")
    read.set_allow_comments(allow_comments=True).set_array_element_delimiter(delimiter=":").set_quote_character(c="|")
    read.set_escape_character(c="!").set_null_literal(null_literal="-").set_ignore_parse_errors(
        ignore_parse_errors=True
    )
    assert read.build().deserialize(b"7") == Row(a=7)
    write = CsvRowSerializationSchema.Builder(type_info=ROW).set_field_delimiter(c=";").set_null_literal(s="-")
    assert write.set_line_delimiter(delimiter="").build().serialize(Row(None)) == b"-"
    assert JsonRowSerializationSchema.builder().with_type_info(type_info=ROW).build().serialize(Row(1)) == b'{"a":1}'
    built = serializer().set_topic_selector(topic_selector=lambda value: "t")
    built.set_key_serialization_schema(key_serialization_schema=SCHEMA)
    built.set_value_serialization_schema(value_serialization_schema=SCHEMA).build()
    writing = sink().set_delivery_guarantee(delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE)
    writing.set_transactional_id_prefix(transactional_id_prefix="p").set_property(key="linger.ms", value="5").build()
    reading = (
        source().set_topic_pattern(topic_pattern="t.*").set_group_id(group_id="g").set_client_id_prefix(prefix="c")
    )
    reading.set_starting_offsets(starting_offsets_initializer=KafkaOffsetsInitializer.committed_offsets())
    reading.set_bounded(stopping_offsets_initializer=KafkaOffsetsInitializer.latest()).build()


# --- Names are where PyFlink has them, and none of them needs Spark or a driver to be imported ----------------------


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


# --- The sources and sinks of one's own in docs/connectors.md are ones ----------------------------------------------


def test_the_documented_source_gives_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = documented("documented_source", 1, tmp_path, monkeypatch).Countdowns()
    reading = SplitReading(source, SourceLimits(max_records=4)).run()
    assert reading.ended
    assert reading.by_split == {"3": [3, 2, 1], "5": [5, 4, 3, 2, 1]}


def test_the_documented_sink_writes_each_epoch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = documented("documented_sink", 4, tmp_path, monkeypatch).JsonFiles(str(tmp_path))
    env, store = environment(1), StateStore()
    numbers = env.from_collection([Row(n=n) for n in range(7)], Types.ROW_NAMED(["n"], [Types.LONG()]))
    numbers.sink_to(sink)
    commit = type(sink).commit
    while not store.finished:
        cluster = MiniCluster(job_of(env), ManualClock(), store, 3)
        with pytest.raises(UserCodeError, match="the answer was lost"), monkeypatch.context() as patched:
            patched.setattr(type(sink), "commit", lambda *given: (commit(*given), _lose_it()))
            cluster.run_epoch()
        # the epoch is delivered again
        cluster.run_epoch()
        cluster.dispose()
    files = sorted(tmp_path.glob("*.json"))
    assert [json.loads(file.read_text()) for file in files] == [
        [{"n": 0}, {"n": 1}, {"n": 2}],
        [{"n": 3}, {"n": 4}, {"n": 5}],
        [{"n": 6}],
    ]


def _lose_it() -> None:
    raise RuntimeError("the answer was lost")
