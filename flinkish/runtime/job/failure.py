"""Describes errors of user code: the user's own traceback first, then the place in the job where it happened."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import ssl
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from operator import length_hint
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import flinkish
from flinkish import errors
from flinkish.common.arguments import abbreviated, kind_of, name_of, place_of
from flinkish.core.functions import Function
from flinkish.errors import (
    MAX_TRACEBACK,
    ArgumentTypeError,
    ArgumentValueError,
    ConnectionFailedError,
    CorruptStateError,
    FlinkishError,
    TypeMismatchError,
    UserCodeError,
    indented,
    message_of,
    redact,
    shortened,
)
from flinkish.runtime.job.log import MAX_CHARACTERS, MAX_LINES, take_current
from flinkish.runtime.job.operator import StreamOperator, Values
from flinkish.runtime.state.handles import NO_KEY

#: Version of the encoded form of errors.
ERROR_FORMAT_VERSION = 3

#: The folder of flinkish: frames of other files are those of user code, or of what it calls.
OWN_ROOT = str(Path(flinkish.__file__).resolve().parent) + os.sep
_KEY_LENGTH = _RECORD_LENGTH = 200

_LIST_ITERATOR: type = type(iter([0]))
#: Iterators that know how many items are left, and that can be moved to their end.
ITERATORS: tuple[Any, ...] = (_LIST_ITERATOR, type(iter(())), type(iter(range(0))), type(iter(range(2**99))))
#: The files of what takes the results of an operator: behind it, the records of the operator's loops are not those in
#: work. A test looks for them.
OUTPUTS = tuple(
    os.path.join(OWN_ROOT, "runtime", *name.split("/"))
    for name in ("job/outputs.py", "task/chain.py", "exchange/writer.py", "exchange/partitioners.py")
)


#: The hint for errors of tasks. It holds for all of them: an epoch is committed only after all of its tasks have ended.
NOTHING_COMMITTED = "nothing of this epoch was committed; mend the program and start the job again"


def uncommitted(epoch: int) -> str:
    """Names an epoch in an error that does not say itself that nothing of it was committed."""
    return f"epoch {epoch}, of which nothing is committed"


class ReadsRecords(Protocol):
    """A task that has read records from outside."""

    def place_of(self, position: int | None, batches: Sequence[tuple[StreamOperator, Values]]) -> str:
        """Where the record of that number in the batch of the last of the operators was read; "": it is not known."""


def describe_failure(
    error: BaseException,
    task: str,
    epoch: int,
    hint: str = NOTHING_COMMITTED,
    records: bool = True,
    source: ReadsRecords | None = None,
) -> FlinkishError:
    """The typed error for an error that a task has raised; one that names its task is returned as it is.

    Args:
        hint: what to do if user code is at fault.
        records: whether the error may name the record and the key that user code was called with, and a value that
            does not fit its type (``flinkish.errors.records``).
        source: the task, if it is that of a source, which knows where the record was read.
    """
    if isinstance(error, FlinkishError) and error.task:
        return error
    frames = _frames(error.__traceback__)
    if isinstance(error, TypeMismatchError) and error.value and not records:
        error.what = error.what.replace(error.value, "(not shown)", 1)
        error.where = re.sub(r", record .*", "", error.where)
    where = _where(frames, error, task, epoch, records, source)
    # argument errors come from a call of the API by user code, whose author needs the traceback to find the line
    if isinstance(error, FlinkishError) and not isinstance(error, (ArgumentTypeError, ArgumentValueError)):
        error.task, error.epoch, error.log = task, epoch, take_current()
        error.where = _joined(error.where, where)
        return error
    if _is_of_connector(error, frames):
        failed = ConnectionFailedError(
            f"a server does not answer: {type(error).__name__}: {message_of(error)}",
            where=_joined("", where),
            hint="check the server and the network; then start the same job again",
        )
        failed.task, failed.epoch, failed.log, failed.__cause__ = task, epoch, take_current(), error
        return failed
    trace = user_traceback(error) if any(map(_is_foreign, frames)) else _without_frames(error, frames)
    wrong = _not_iterable(error, frames)
    if wrong:
        raised = UserCodeError(wrong, user_traceback=trace, where=_joined("", where), expected=_ITERABLE, hint=hint)
    elif isinstance(error, FlinkishError):
        raised = UserCodeError(
            f"{type(error).__name__} in user code: {error.what}",
            user_traceback=trace,
            where=_joined(error.where, where),
            expected=error.expected,
            hint=error.hint,
        )
    else:
        raised = UserCodeError(
            f"{type(error).__name__} in user code: {message_of(error)}",
            user_traceback=trace,
            where=_joined("", where),
            expected=_ITERABLE if _is_about_iterables(error) and not _is_foreign(frames[-1]) else "",
            hint=hint,
        )
    raised.task, raised.epoch, raised.log = task, epoch, take_current()
    if _picklable(error):
        raised.__cause__ = error
    return raised


#: What a wait for a server ends with, in Python's own words.
_NO_ANSWER = (TimeoutError, FutureTimeout, ConnectionError, socket.timeout, socket.gaierror, ssl.SSLError)
#: the files of Python and of installed packages
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|^<frozen ")
_CONNECTORS = os.path.join(OWN_ROOT, "connectors") + os.sep


def _is_of_connector(error: BaseException, frames: list[tuple[str, dict[str, Any]]]) -> bool:
    """Whether a connector of flinkish has waited for a server in vain: no code of the program had a part in it."""
    files = [file for file, _ in frames]
    ours = any(file.startswith(_CONNECTORS) for file in files)
    others = (file for file in files if not file.startswith(OWN_ROOT))
    return ours and isinstance(error, _NO_ANSWER) and all(map(_LIBRARY.search, others))


#: What functions of several results return.
_ITERABLE = "an iterable, such as a list, or results that are yielded"


def _is_about_iterables(error: BaseException) -> bool:
    return isinstance(error, TypeError) and message_of(error).endswith("object is not iterable")


def _not_iterable(error: BaseException, frames: list[tuple[str, dict[str, Any]]]) -> str:
    """The beginning of the message for a function whose result the engine has failed to iterate over; else "". The
    loops over results of user code call these ``iterable``."""
    file, variables = frames[-1] if frames else ("", {})
    if not _is_about_iterables(error) or not file.startswith(OWN_ROOT) or "iterable" not in variables:
        return ""
    result = variables["iterable"]
    return f"the function {_function_in(frames)}returned {abbreviated(result)}, {kind_of(result)}"


def _function_in(frames: list[tuple[str, dict[str, Any]]]) -> str:
    """The function of user code of the innermost operator, as messages name it; "" if it has none or several."""
    operator = next(filter(None, (operator_of(variables) for _, variables in reversed(frames))), None)
    function = getattr(operator, "function", None)
    return "" if function is None else f"{name_of(function)} "


def _is_foreign(frame: tuple[str, dict[str, Any]]) -> bool:
    return not frame[0].startswith(OWN_ROOT)


#: How Python says that a function was called with other arguments than it takes.
_ARITY = re.compile(r"\(\) (takes|missing|got an unexpected)|takes (no|exactly|at (most|least)|\d+)|is not callable$")


def _without_frames(error: BaseException, frames: list[tuple[str, dict[str, Any]]]) -> str:
    """The traceback of an error that no frame of user code has: the line of the program that has added the operator
    stands for them, if it was its function that could not be called, that has no frames since it is written in C, or
    that has returned something else. Otherwise the engine may be at fault, and its own frames are shown."""
    operator = next(filter(None, (operator_of(variables) for _, variables in reversed(frames))), None)
    calls = [] if operator is None else [operator.function] if hasattr(operator, "function") else []
    no_frames = any(not place_of(call) and not isinstance(call, Function) for call in calls)
    of_function = isinstance(error, TypeError) and (_ARITY.search(message_of(error)) or _not_iterable(error, frames))
    if operator is None or not (of_function or no_frames):
        return user_traceback(error)
    said = indented(shortened("".join(traceback.format_exception_only(type(error), error)).rstrip("\n")))
    return f"Traceback (most recent call last):\n{operator.context.added_at}{said}\n"


def _frames(tb: TracebackType | None) -> list[tuple[str, dict[str, Any]]]:
    frames = []
    while tb is not None:
        frames.append((tb.tb_frame.f_code.co_filename, tb.tb_frame.f_locals))
        tb = tb.tb_next
    return frames


def _where(
    frames: list[tuple[str, dict[str, Any]]],
    error: BaseException,
    task: str,
    epoch: int,
    records: bool,
    source: ReadsRecords | None,
) -> list[str]:
    """Task and epoch, with the innermost operator on the stack, which is the one whose user code failed, the record
    that this was called with, and the place where the record was read."""
    at = next((index for index in reversed(range(len(frames))) if operator_of(frames[index][1]) is not None), 0)
    operator = operator_of(frames[at][1]) if frames else None
    of_operator = []
    if operator is not None:
        name = f"operator '{operator.context.name}' (uid {operator.context.uid})"
        of_operator = [name, input_and_key(operator, frames[at][1], records).removeprefix(", ")]
    record, position = _record_of(error, frames, at, operator)
    # a record without a number may be one of an earlier batch, as those of asynchronous calls
    is_of_batch = record is None or position is not None
    read = source.place_of(position, _batches(frames)) if source is not None and is_of_batch else ""
    named = "" if record is None or not records else record if record.startswith("timer ") else f"record {record}"
    return [f"task '{task}'", *of_operator, named, read, f"epoch {epoch}"]


def _joined(where: str, further: list[str]) -> str:
    """Where an error has happened by its own account, and the further places, each of which is named once."""
    return "; ".join(filter(None, (where, ", ".join(part for part in further if part and part not in where))))


def _record_of(
    error: BaseException, frames: list[tuple[str, dict[str, Any]]], at: int, operator: StreamOperator | None
) -> tuple[str | None, int | None]:
    """The record that user code was called with, as messages name it, and its number in the batch of its operator,
    whose frame is the one of the index ``at``; None for what is not known."""
    if isinstance(error, TypeMismatchError) and error.position is not None:
        # a result that does not fit; the results of these operators stand where their records did
        given: Values = next((values for one, values in reversed(_batches(frames)) if one is operator), [])
        given = given if isinstance(given, list) else []
        if operator is None or not operator.keeps_positions or error.position >= len(given):
            return None, None
        return _named(given[error.position]), error.position
    called = next((index for index in range(at, len(frames)) if _is_foreign(frames[index])), len(frames))
    inside: list[dict[str, Any]] = []
    for file, variables in reversed(frames[at:called]):
        inside.append(variables)
        if file in OUTPUTS:
            break
    return record_in_work(inside)


def record_in_work(frames: Iterable[dict[str, Any]]) -> tuple[str | None, int | None]:
    """The record, or the timer, that is in work, as messages name it, and its number in its batch if that is known.

    ``frames``: the variables of frames of the engine, the innermost first. The nearest that has a record says it: loops
    over records take them from an iterator named ``arriving``, which knows how many of the ``values`` are left."""
    for variables in frames:
        values, left = variables.get("values"), left_of(variables.get("arriving"))
        position = None
        if isinstance(values, Sequence) and left is not None:
            position = len(values) - left - 1
        if "value" in variables:
            return _named(variables["value"]), position
        if isinstance(values, Sequence) and position is not None:
            return (_named(values[position]), position) if position >= 0 else (None, None)
        if "timestamp_ms" in variables:
            return f"timer {variables['timestamp_ms']}", None
    return None, None


def _named(record: Any) -> str:
    return redact(abbreviated(record, _RECORD_LENGTH))


def left_of(value: Any) -> int | None:
    """How many items an iterator over a list or the like has left; None for any other value."""
    return length_hint(value) if type(value) in ITERATORS else None


def _batches(frames: list[tuple[str, dict[str, Any]]]) -> list[tuple[StreamOperator, Values]]:
    """The operators on the stack, the outermost first, with the batch that each was given. The frames of one operator
    are several; the first one is its `process_batch`. One that calls a function for some records of its batch, which it
    has selected, is there once more, with these."""
    found: list[tuple[StreamOperator, Values]] = []
    for _, variables in frames:
        operator, values = operator_of(variables), variables.get("values")
        if operator is None:
            if found and isinstance(values, list) and left_of(variables.get("arriving")) is not None:
                found.append((found[-1][0], values))
        elif _is_batch(values) and all(operator is not known for known, _ in found):
            found.append((operator, values))
    return found


def _is_batch(values: Any) -> bool:
    """Whether these are records, or a `ColumnBatch`, of which jobs of records know nothing."""
    return isinstance(values, list) or type(values).__name__ == "ColumnBatch"


def operator_of(variables: dict[str, Any]) -> StreamOperator | None:
    """The operator in whose method these are the variables; None if it is an object of user code, of which nothing may
    be asked, or an operator that is not set up yet."""
    operator = variables.get("self")
    return operator if isinstance(operator, StreamOperator) and hasattr(operator, "context") else None


def input_and_key(operator: StreamOperator, variables: dict[str, Any], keys: bool = True) -> str:
    """The input and the key that an operator is processing, as the end of its name in messages; "" if it has neither.

    Args:
        variables: those of the operator's method.
        keys: whether the key may be named.
    """
    return _input(operator, variables) + (_key(operator, variables) if keys else "")


def _input(operator: StreamOperator, variables: dict[str, Any]) -> str:
    """The input that an operator with several inputs was processing, counted from 1 as in the names of its function's
    methods; else ""."""
    input_index = variables.get("input_index")
    return f", input {input_index + 1}" if operator.inputs > 1 and isinstance(input_index, int) else ""


def _key(operator: StreamOperator, variables: dict[str, Any]) -> str:
    backend = operator.context.keyed_state
    if backend is None:
        return ""
    # a function without state handles does not need the current key, so only the loop that calls it has the key
    key = variables.get("key", NO_KEY) if backend.current_key is NO_KEY else backend.current_key
    return f", key {abbreviated(key, _KEY_LENGTH)}"


def user_traceback(error: BaseException, said: str | None = None) -> str:
    """The traceback from the first frame on that is not in flinkish; later frames of flinkish were called by user
    code. What the exception says is `indented`, since it may quote a record. ``said``: in place of its own text."""
    entries = traceback.extract_tb(error.__traceback__)
    foreign = (index for index, entry in enumerate(entries) if not entry.filename.startswith(OWN_ROOT))
    start = next(foreign, 0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(entries[start:])]
    said = said or "".join(traceback.format_exception_only(type(error), error)).rstrip("\n")
    return "".join([*lines, indented(shortened(said)), "\n"])


def _picklable(error: BaseException) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def encode_error(error: FlinkishError) -> bytes:
    """Encode an error for the way to the driver, as plain data: its texts may quote records, which anybody may have
    written. An error whose class the program defines becomes one of its nearest base class in flinkish."""
    kinds = (kind.__name__ for kind in type(error).__mro__ if vars(errors).get(kind.__name__) is kind)
    attributes = {name: value for name, (_, fits) in _ATTRIBUTES.items() if fits(value := getattr(error, name, None))}
    texts = {name: shortened(str(getattr(error, name)), MAX_TRACEBACK) for name in _TEXTS}
    value = {"version": ERROR_FORMAT_VERSION, "class": next(kinds), **texts, **attributes}
    data = json.dumps(value).encode()
    # the names of loggers, too, are the program's
    return data if len(data) <= _MAX_ENCODED else json.dumps({**value, "log": []}).encode()


def decode_error(data: bytes, where: str = "") -> FlinkishError:
    """The inverse of `encode_error`. Each field is checked, since the data may come from a file.

    Raises:
        CorruptStateError: these are not the fields of an error; the message names the first that is not.
    """
    try:
        value = json.loads(data) if len(data) <= _MAX_ENCODED else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _no_error(f"{len(data):,} bytes are not JSON of an error", where)
    kind = vars(errors).get(value["class"]) if isinstance(value.get("class"), str) else None
    if value.pop("version", None) != ERROR_FORMAT_VERSION:
        raise _no_error(f"the format version is not {ERROR_FORMAT_VERSION}", where)
    if not (isinstance(kind, type) and issubclass(kind, FlinkishError)):
        raise _no_error("the class is none of flinkish.errors", where)
    for name in (*_TEXTS, *(name for name in _ATTRIBUTES if name in value)):
        expected, fits = _ATTRIBUTES.get(name, _TEXT)
        if not fits(value.get(name)):
            raise _no_error(f"the field {name} is not {expected}", where)
    unknown = value.keys() - {"class", *_TEXTS, *_ATTRIBUTES}
    if unknown:
        raise _no_error(f"the field {abbreviated(min(unknown), _KEY_LENGTH)} is unknown", where)
    error = kind.__new__(kind)
    FlinkishError.__init__(error, **{name: value[name] for name in _TEXTS})
    error.__dict__.update({name: value[name] for name in _ATTRIBUTES if name in value})
    if "log" in value:
        error.log = tuple((float(time), level, logger, text) for time, level, logger, text in value["log"])
    if isinstance(error, UserCodeError) and "user_traceback" not in value:
        error.user_traceback = ""
    return error


def _no_error(why: str, where: str) -> CorruptStateError:
    return CorruptStateError(
        f"an error on its way to the driver cannot be decoded: {why}",
        where=where,
        hint="look for the error itself in the output of the workers and of the Spark server",
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TRACEBACK


def _is_log(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) <= MAX_LINES + 1 and all(map(_is_log_line, value))


def _is_log_line(line: Any) -> bool:
    """Whether a value is one of `flinkish.runtime.job.log.LogLine`."""
    if not isinstance(line, (list, tuple)) or len(line) != 4:
        return False
    time, level, *texts = line
    numbers = type(time) in (int, float) and abs(time) <= _MAX_NUMBER and type(level) is int
    return numbers and all(isinstance(text, str) for text in texts)


def _is_number_or_none(value: Any) -> bool:
    return value is None or (type(value) is int and abs(value) <= _MAX_NUMBER)


_MAX_NUMBER = 2**63
#: The most bytes of an encoded error: its log, each character escaped, and the rest.
_MAX_ENCODED = 12 * MAX_CHARACTERS + 4 * 1024 * 1024

#: (what a field must be, the function that checks it)
_Rule = tuple[str, Callable[[Any], bool]]

#: The arguments of an error.
_TEXTS = ("what", "where", "expected", "hint")
_TEXT: _Rule = (f"a text of at most {MAX_TRACEBACK:,} characters", _is_text)
#: The attributes of errors that travel with them, and how they are checked.
_ATTRIBUTES: dict[str, _Rule] = {
    **dict.fromkeys(("task", "place", "story", "file", "user_traceback"), _TEXT),
    "epoch": ("a number or null", _is_number_or_none),
    "log": ("a list of lines: time, level, logger, text", _is_log),
}
