"""Programs of tests: environments that run in this process, and what becomes of a program."""

from __future__ import annotations

from typing import Any

from flinkish.common import Configuration
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.datastream.streams.results import CloseableIterator
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.table import StreamTableEnvironment


def new_environment(parallelism: int = 1, **settings: str) -> StreamExecutionEnvironment:
    """An environment for the minicluster. ``settings``: keys with ``__`` for ``.`` and ``_`` for ``-``."""
    configuration = Configuration().set_string("execution.target", "minicluster")
    for key, value in settings.items():
        configuration.set_string(key.replace("__", ".").replace("_", "-"), value)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def configuration_of(env: StreamExecutionEnvironment) -> Configuration:
    """The configuration of an environment, as programs get it through its table environment."""
    return StreamTableEnvironment.create(env).get_config().get_configuration()


def job_of(env: StreamExecutionEnvironment, **settings: Any) -> JobDescriptor:
    """The job graph of the program so far. ``settings``: as for `JobSettings`."""
    return JobGraphGenerator(env.get_stream_graph(), JobSettings(**settings), env.is_chaining_enabled()).generate(
        "job", "test"
    )


def chains_of(env: StreamExecutionEnvironment) -> list[str]:
    """The names of the vertices."""
    return [vertex.name for vertex in job_of(env).vertices]


def results_of(stream: DataStream) -> list[Any]:
    """Run the program and collect the stream."""
    results = stream.execute_and_collect()
    assert isinstance(results, CloseableIterator)
    with results:
        return list(results)
