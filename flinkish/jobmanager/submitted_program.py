"""Captures a program at its call of ``execute``, for callers that want the program itself instead of running it, and
sends a job the way that it has to the workers of Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.connectors.generated import SAMPLE, CollectionSource
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamGraph
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor


@dataclass(frozen=True)
class SubmittedProgram:
    """A program as ``execute`` submits it: stream graph, configuration, job name, and whether operators are chained."""

    graph: StreamGraph
    configuration: Configuration
    name: str
    chaining: bool


class _Captured(BaseException):
    """Ends the program at ``execute``. A BaseException, so that no ``except Exception`` of the program catches it."""

    def __init__(self, program: SubmittedProgram) -> None:
        self.program = program


class _Capture:
    """Holds whether programs of this process are captured at present."""

    on = False


def offer(program: SubmittedProgram) -> None:
    """To be called with each program that is submitted; does not return inside a call of `captured`."""
    if _Capture.on:
        raise _Captured(program)


def captured(main: Callable[[], Any]) -> SubmittedProgram:
    """Call a function that builds a program and executes it; returns the program, which does not run.

    Raises:
        ProgramError: the function has returned without calling ``execute``.
        Exception: whatever the function raises.
    """
    before, _Capture.on = _Capture.on, True
    try:
        main()
    except _Captured as end:
        return end.program
    finally:
        _Capture.on = before
    raise ProgramError("the program has ended without calling execute()", expected="a call of env.execute()")


def sent_to_minicluster(job: JobDescriptor) -> JobDescriptor:
    """The job graph for a minicluster. What the workers of Spark could not be sent is refused here as well: PySpark's
    own pickler says what that is, or, without PySpark, the copy that the job gets of its functions. Of the values of a
    collection only the first are tried, since there may be many.

    Raises:
        UnserializableFunctionError: a function cannot be pickled; the error names its operator.
    """
    if not job.settings.share_functions and _has_pyspark():
        from flinkish.spark.worker import deploy

        deploy(replace(job, vertices=tuple(map(_with_few_values, job.vertices))), partitions=1)
    return job.with_own_functions()


def _has_pyspark() -> bool:
    try:
        import pyspark.cloudpickle  # noqa: F401
    except ImportError:
        # there is none, or one that lacks what it needs
        return False
    return True


def _with_few_values(vertex: VertexDescriptor) -> VertexDescriptor:
    source = vertex.source
    return replace(vertex, source=source.first(SAMPLE)) if isinstance(source, CollectionSource) else vertex


def arrived_in_worker(job: JobDescriptor) -> JobDescriptor:
    """The job graph as a worker of Spark gets it: all functions, sources and sinks are pickled and unpickled.

    Raises:
        UnserializableFunctionError: a function cannot be pickled; the error names its operator.
    """
    from flinkish.spark.worker import deploy

    return deploy(job, partitions=1).unpickled_job()
