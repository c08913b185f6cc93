"""The debugger in a replay: post-mortem where an epoch has failed, and breakpoints in one task only."""

from __future__ import annotations

import pdb
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from flinkish.errors import UserCodeError
from flinkish.runtime.task.task import Task


def place_of_failure(error: BaseException) -> TracebackType | None:
    """The traceback of the exception that user code has raised, also if the engine has raised a UserCodeError for it;
    otherwise that of the error itself."""
    original = error.__context__ if isinstance(error, UserCodeError) and error.__context__ is not None else error
    return original.__traceback__


def post_mortem(error: BaseException) -> None:
    """Open the debugger where the epoch has failed."""
    place = place_of_failure(error)
    if place is not None:
        pdb.post_mortem(place)


@contextmanager
def breakpoints_of(task: tuple[int, int] | None) -> Iterator[None]:
    """Within the block, ``breakpoint()`` stops only in this task, (vertex, subtask); None: in all tasks."""
    before = sys.breakpointhook

    def hook(*arguments: Any, **settings: Any) -> Any:
        frame = sys._getframe(1)
        if _task_of(frame) == task:
            pdb.Pdb().set_trace(frame)

    if task is not None:
        sys.breakpointhook = hook
    try:
        yield
    finally:
        sys.breakpointhook = before


def _task_of(frame: FrameType | None) -> tuple[int, int] | None:
    """The task, (vertex, subtask), that the frame or one of its callers belongs to; None: none."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Task):
            return owner.vertex.id, owner.subtask
        frame = frame.f_back
    return None
