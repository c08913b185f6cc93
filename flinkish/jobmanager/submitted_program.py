"""A program at the moment in which it calls ``execute``, for who wants to have it rather than run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamGraph


@dataclass(frozen=True)
class SubmittedProgram:
    """What ``execute`` was called with."""

    graph: StreamGraph
    configuration: Configuration
    name: str
    chaining: bool


class _Captured(BaseException):
    """Ends the program at ``execute``; no ``except Exception`` of the program keeps it."""

    def __init__(self, program: SubmittedProgram) -> None:
        self.program = program


class _Capture:
    """Whether programs of this process are captured."""

    on = False


def offer(program: SubmittedProgram) -> None:
    """Called with each program that is submitted; does not return if somebody wants to have it."""
    if _Capture.on:
        raise _Captured(program)


def captured(main: Callable[[], Any]) -> SubmittedProgram:
    """Call a function that writes a program and executes it; gives the program, which does not run.

    Raises:
        ProgramError: the function has come to its end without ``execute``. And whatever the function raises.
    """
    before, _Capture.on = _Capture.on, True
    try:
        main()
    except _Captured as end:
        return end.program
    finally:
        _Capture.on = before
    raise ProgramError("the program has ended without calling execute()", expected="a call of env.execute()")
