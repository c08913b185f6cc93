"""Names of PyFlink's that flinkish does not have can be imported, and say when they are used what to do instead."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from typing import Any, Optional

import pytest
from pyspark import cloudpickle

from flinkish.common import Configuration, Types
from flinkish.datastream import SinkFunction, SourceFunction, StreamExecutionEnvironment
from flinkish.errors import ProgramError, UnsupportedOperationError

#: A name, and words of what is to be done instead.
ABSENT = [
    ("flinkish.datastream.connectors.opensearch:OpenSearchSink", "OpenSearch has no connector here.*PagedSource"),
    ("flinkish.datastream.connectors.rabbitmq:RMQSink", "RabbitMQ.*WriterSink"),
    ("flinkish.datastream.connectors.pulsar:PulsarSource", "Pulsar.*env.from_spark"),
    ("flinkish.datastream.connectors.elasticsearch:Elasticsearch7SinkBuilder", "Elasticsearch.*WriterSink"),
    ("flinkish.datastream.connectors.cassandra:CassandraSink", "Cassandra.*WriterSink"),
    ("flinkish.datastream.connectors.mongodb:MongoSink", "MongoDB.*WriterSink"),
    ("flinkish.datastream.connectors.dynamic_kafka:DynamicKafkaSource", "one KafkaSource for each cluster"),
    ("flinkish.datastream.connectors:RMQSource", "RabbitMQ.*PagedSource"),
    ("flinkish.datastream.connectors:StopCursor", "Pulsar.*PagedSource"),
    ("flinkish.datastream.connectors:DynamicKafkaSource", "one KafkaSource for each cluster"),
    ("flinkish.java_gateway:get_gateway", "no Flink in Java.*env.configure"),
    ("flinkish.util.java_utils:load_java_class", "no Flink in Java.*env.configure"),
    ("flinkish.find_flink_home:_find_flink_home", "the jars of Flink's connectors are not needed"),
    ("flinkish.fn_execution.state_impl:SynchronousValueRuntimeState", "the inside of PyFlink"),
    ("flinkish.testing.test_case_utils:PythonAPICompletenessTestCase", "with flinkish.testing"),
    ("flinkish.testing.source_sink_utils:TestAppendSink", "with flinkish.testing"),
    ("flinkish.dataset:ExecutionEnvironment", "DataStream whose sources are bounded"),
    ("flinkish.common.utils:JavaObjectWrapper", "no Flink in Java"),
    ("flinkish.datastream.functions:JavaFunctionWrapper", "no Flink in Java"),
    ("flinkish.datastream.data_stream:PassThroughWindowFunction", "the inside of PyFlink"),
    ("flinkish.table.expressions:lag", "no such part here"),
    ("flinkish.table:TableFunction", "no such part here.*docs/tables.md.*to_data_stream"),
]


def imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("path", "instead"), ABSENT, ids=[path for path, _ in ABSENT])
def test_an_absent_name_is_imported_and_its_use_says_what_to_do(path: str, instead: str) -> None:
    name = imported(path)
    uses: list[Callable[[], Any]] = [
        lambda: name("an argument"),
        lambda: name.builder,
        lambda: type("Derived", (name,), {}),
    ]
    for use in uses:
        with pytest.raises(UnsupportedOperationError, match=instead) as raised:
            use()
        assert f"flinkish has no {path.partition(':')[2]} [pyflink" in str(raised.value)


def test_an_absent_name_stands_in_annotations_and_travels_with_functions() -> None:
    from flinkish.datastream.connectors.rabbitmq import RMQSource as Consumer  # type: ignore[import-not-found]

    def choose(consumer: Optional[Consumer], other: Consumer | None) -> bool:  # noqa: UP045 - users write both
        return isinstance(consumer, Consumer)

    assert pickle.loads(pickle.dumps(Consumer)) is Consumer
    assert not pickle.loads(cloudpickle.dumps(choose))(1, None)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("flinkish.datastream.connectors.kinesi:Consumer", ModuleNotFoundError),
        ("flinkish.datastream.connectors:KafkaSourc", AttributeError),
        ("flinkish.datastream.functions:MapFunctio", AttributeError),
        ("flinkish.common:Rows", AttributeError),
        ("flinkish.java_gateway:__wrapped__", AttributeError),
        ("flinkish.java_gateway:_private", AttributeError),
        ("flinkish.testing:ProgramTestHarnes", AttributeError),
        ("flinkish.datastream.testss:A", ModuleNotFoundError),
    ],
)
def test_a_misspelt_name_is_an_ordinary_error(path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        imported(path)


class JavaLikeSink(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None: ...


class JavaLikeSource(SourceFunction):
    def run(self, context: Any) -> None: ...


@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (JavaLikeSink, "JavaLikeSink.*WriterSink"),
        (lambda: SinkFunction("org.apache.flink.SomeSink"), "WriterSink"),  # type: ignore[call-arg]
        (JavaLikeSource, "JavaLikeSource.*PagedSource"),
        (lambda: SourceFunction("org.apache.flink.SomeSource"), "PagedSource"),  # type: ignore[abstract, call-arg]
    ],
    ids=["own sink", "sink of Java", "own source", "source of Java"],
)
def test_a_sink_or_source_function_says_what_to_subclass(make: Callable[[], Any], instead: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=instead):
        make()


def test_objects_of_java_say_that_there_are_none() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ProgramError, match=r"_j_stream_execution_environment.socketTextStream has.*env\.configure"):
        env._j_stream_execution_environment.socketTextStream("localhost", 1)
    with pytest.raises(ProgramError, match="DataStream._j_data_stream"):
        env.from_collection([1], Types.INT())._j_data_stream.print()


def test_the_configuration_of_an_environment_is_reached_as_programs_of_pyflink_do() -> None:
    from flinkish.util.java_utils import get_j_env_configuration  # type: ignore[import-not-found]

    env = StreamExecutionEnvironment.get_execution_environment()
    config = Configuration(j_configuration=get_j_env_configuration(env._j_stream_execution_environment))
    config.set_string("pipeline.name", "counts").set_integer("python.fn-execution.bundle.size", 10)
    of_java = get_j_env_configuration(env._j_stream_execution_environment)
    of_java.setInteger("parallelism.default", 3)
    assert (of_java.getString("pipeline.name", ""), env.get_parallelism()) == ("counts", 3)
    assert Configuration(config) == config
    assert Configuration(config).set_string("pipeline.name", "other") != config
    with pytest.raises(ProgramError, match="the method toMap of Java's Configuration has no meaning here"):
        of_java.toMap()
