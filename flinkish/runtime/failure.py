"""Errors of user code: the user's own traceback first, then where in the job it happened."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from flinkish.errors import FlinkishError, UserCodeError
from flinkish.runtime.operator import StreamOperator

_OWN_ROOT = str(Path(__file__).resolve().parent.parent) + os.sep
_KEY_LENGTH = 200


#: True of all that a task raises: sinks hear of an epoch only when all of its tasks have ended.
NOTHING_COMMITTED = "nothing of this epoch was committed; mend the program and start the job again"


def describe_failure(error: BaseException, task: str, epoch: int, hint: str = NOTHING_COMMITTED) -> FlinkishError:
    """The typed error for whatever a task raised. ``hint``: what to do about user code that is wrong."""
    frames = _frames(error.__traceback__)
    where = _where(frames, task, epoch)
    if isinstance(error, FlinkishError):
        error.task, error.epoch = task, epoch
        error.where = "; ".join(part for part in (error.where, where) if part)
        return error
    user_traceback = "".join(_user_traceback(error))
    raised = UserCodeError(
        f"{type(error).__name__} in user code: {error}",
        user_traceback=user_traceback,
        where=where,
        hint=hint,
    )
    raised.task, raised.epoch = task, epoch
    if _picklable(error):
        raised.__cause__ = error
    return raised


def _frames(tb: TracebackType | None) -> list[tuple[str, dict[str, Any]]]:
    frames = []
    while tb is not None:
        frames.append((tb.tb_frame.f_code.co_filename, tb.tb_frame.f_locals))
        tb = tb.tb_next
    return frames


def _where(frames: list[tuple[str, dict[str, Any]]], task: str, epoch: int) -> str:
    """The innermost operator on the stack is the one whose user code failed."""
    for _, variables in reversed(frames):
        operator = variables.get("self")
        context = getattr(operator, "context", None)
        if isinstance(operator, StreamOperator) and context is not None:
            return f"task '{task}', operator '{context.name}' (uid {context.uid}){_key(operator)}, epoch {epoch}"
    return f"task '{task}', epoch {epoch}"


def _key(operator: StreamOperator) -> str:
    backend = operator.context.keyed_state
    if backend is None:
        return ""
    try:
        text = repr(backend.current_key)
    except Exception:
        return ""
    return f", key {text[:_KEY_LENGTH]}"


def _user_traceback(error: BaseException) -> list[str]:
    """The traceback from the first frame on that is not ours; ours behind it are what user code called."""
    entries = traceback.extract_tb(error.__traceback__)
    foreign = (index for index, entry in enumerate(entries) if not entry.filename.startswith(_OWN_ROOT))
    start = next(foreign, 0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(entries[start:])]
    return [*lines, *traceback.format_exception_only(type(error), error)]


def _picklable(error: BaseException) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True
