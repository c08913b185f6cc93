"""Describes errors of user code: the user's own traceback first, then the place in the job where it happened."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CorruptStateError,
    FlinkishError,
    StoredClassError,
    UserCodeError,
    indented,
    message_of,
    shortened,
)
from flinkish.runtime.operator import StreamOperator
from flinkish.runtime.stored_pickle import dumps, loads
from flinkish.runtime.task_log import take_current

#: Version of the encoded form of errors.
ERROR_FORMAT_VERSION = 2

_OWN_ROOT = str(Path(__file__).resolve().parent.parent) + os.sep
_KEY_LENGTH = 200


#: The hint for errors of tasks. It holds for all of them: an epoch is committed only after all of its tasks have ended.
NOTHING_COMMITTED = "nothing of this epoch was committed; mend the program and start the job again"


def describe_failure(error: BaseException, task: str, epoch: int, hint: str = NOTHING_COMMITTED) -> FlinkishError:
    """The typed error for an error that a task has raised. ``hint`` says what to do if user code is at fault."""
    frames = _frames(error.__traceback__)
    where = _where(frames, task, epoch)
    # argument errors come from a call of the API by user code, whose author needs the traceback to find the line
    if isinstance(error, FlinkishError) and not isinstance(error, (ArgumentTypeError, ArgumentValueError)):
        error.task, error.epoch, error.log = task, epoch, take_current()
        error.where = "; ".join(part for part in (error.where, where) if part)
        return error
    trace = user_traceback(error)
    if isinstance(error, FlinkishError):
        raised = UserCodeError(
            f"{type(error).__name__} in user code: {error.what}",
            user_traceback=trace,
            where=f"{error.where}; {where}",
            expected=error.expected,
            hint=error.hint,
        )
    else:
        raised = UserCodeError(
            f"{type(error).__name__} in user code: {message_of(error)}",
            user_traceback=trace,
            where=where,
            expected=_expected(error),
            hint=hint,
        )
    raised.task, raised.epoch, raised.log = task, epoch, take_current()
    if _picklable(error):
        raised.__cause__ = error
    return raised


def _expected(error: BaseException) -> str:
    """What user code should have returned, if the engine has failed to iterate over its result; else ""."""
    not_iterable = isinstance(error, TypeError) and message_of(error).endswith("object is not iterable")
    innermost = traceback.extract_tb(error.__traceback__)[-1:]
    if not_iterable and innermost and innermost[0].filename.startswith(_OWN_ROOT):
        return "an iterable, such as a list, or results that are yielded"
    return ""


def _frames(tb: TracebackType | None) -> list[tuple[str, dict[str, Any]]]:
    frames = []
    while tb is not None:
        frames.append((tb.tb_frame.f_code.co_filename, tb.tb_frame.f_locals))
        tb = tb.tb_next
    return frames


def _where(frames: list[tuple[str, dict[str, Any]]], task: str, epoch: int) -> str:
    """Task and epoch, with the innermost operator on the stack, which is the one whose user code failed."""
    for _, variables in reversed(frames):
        operator = variables.get("self")
        if not isinstance(operator, StreamOperator):
            # an object of user code, of which nothing may be asked
            continue
        context = getattr(operator, "context", None)
        if context is not None:
            place = f"operator '{context.name}' (uid {context.uid}){_input(operator, variables)}{_key(operator)}"
            return f"task '{task}', {place}, epoch {epoch}"
    return f"task '{task}', epoch {epoch}"


def _input(operator: StreamOperator, variables: dict[str, Any]) -> str:
    """The input that an operator with several inputs was processing, counted from 1 as in the names of its function's
    methods; else ""."""
    input_index = variables.get("input_index")
    return f", input {input_index + 1}" if operator.inputs > 1 and isinstance(input_index, int) else ""


def _key(operator: StreamOperator) -> str:
    backend = operator.context.keyed_state
    if backend is None:
        return ""
    return f", key {abbreviated(backend.current_key, _KEY_LENGTH)}"


def user_traceback(error: BaseException) -> str:
    """The traceback from the first frame on that is not in flinkish; later frames of flinkish were called by user
    code. What the exception says is `indented`, since it may quote a record."""
    entries = traceback.extract_tb(error.__traceback__)
    foreign = (index for index, entry in enumerate(entries) if not entry.filename.startswith(_OWN_ROOT))
    start = next(foreign, 0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(entries[start:])]
    said = "".join(traceback.format_exception_only(type(error), error)).rstrip("\n")
    return "".join([*lines, indented(shortened(said)), "\n"])


def _picklable(error: BaseException) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def encode_error(error: FlinkishError) -> bytes:
    """Encode an error for the way to the driver, as data and not as a plain pickle, since the texts of errors may quote
    records that anybody may have written. An error whose class the program defines becomes one of its nearest base
    class in flinkish."""
    try:
        return dumps(error, ERROR_FORMAT_VERSION)
    except StoredClassError:
        kinds = (kind for kind in type(error).__mro__ if issubclass(kind, FlinkishError))
        known = next(kind for kind in kinds if kind.__module__ == FlinkishError.__module__)
        nearest = known.__new__(known)
        FlinkishError.__init__(nearest, error.what, where=error.where, expected=error.expected, hint=error.hint)
        plain = {name: value for name, value in vars(error).items() if isinstance(value, (str, int, type(None)))}
        nearest.__dict__.update(plain)
        return dumps(nearest, ERROR_FORMAT_VERSION)


def decode_error(data: bytes, where: str = "") -> FlinkishError:
    """The inverse of `encode_error`."""
    error = loads(data, ERROR_FORMAT_VERSION, "an error on its way to the driver", where)
    if not isinstance(error, FlinkishError):
        raise CorruptStateError(f"a {type(error).__name__} was found in place of an error", where=where)
    return error
