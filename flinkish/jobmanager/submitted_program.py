"""Captures a program at its call of ``execute``, for callers that want the program itself instead of running it, and
sends a job the way that it has to the workers of Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamGraph
from flinkish.runtime.deployment import JobDescriptor


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


def arrived_in_worker(job: JobDescriptor) -> JobDescriptor:
    """The job graph as a worker of Spark gets it: all functions, sources and sinks are pickled and unpickled.

    Raises:
        UnserializableFunctionError: a function cannot be pickled; the error names its operator.
    """
    from flinkish.spark.worker import deploy

    return deploy(job, partitions=1).unpickled_job()
