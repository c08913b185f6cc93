"""Reads from what Spark raises the words that Spark itself has put there.

The message of an exception may quote a record, which anybody may have written: an ANSI cast quotes the cell that is no
number. So nothing is looked for anywhere in a text. An exception is read as its chain of causes, and each cause from
its beginning: its class, its error condition (``[CONCURRENT_QUERY]``), and the sentences with which Spark begins, some
of which only introduce a further cause (``Job aborted due to stage failure: ... Lost task ...:``). Reading ends at the
first class whose message may begin with a record, as that of ``ValueError`` may.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

#: The most causes that are read of one exception.
_MAX_CAUSES = 20
#: The most frames, the innermost first, that are read of a cause.
_MAX_FRAMES = 30
#: The most characters that are read of the message of a cause.
_MAX_HEAD = 20_000

#: Classes whose messages do not begin with a record. Those of Spark begin with a condition or a sentence of Spark.
_CLASS = (
    r"org\.apache\.(?:spark|hadoop|kafka)\.[\w.$]+|java\.(?:io|net|nio)\.[\w.$]+|io\.delta\.[\w.$]+|"
    r"java\.util\.concurrent\.\w+|java\.lang\.(?:AssertionError|IllegalStateException|OutOfMemoryError)|"
    r"pyspark\.[\w.]+\.(?:(?:Spark|PySpark|Streaming)\w+|(?:Analysis|Parse|Python|QueryExecution|Unknown)Exception|"
    r"SerializationError)|(?:py4j|grpc)\.[\w.]+|ModuleNotFoundError"
)

#: What stands before a further cause, or before the sentence that tells the cause.
_BEFORE = re.compile(
    rf"(?:{_CLASS})(?:: |:?\s*$)|"
    rf"\((?:{_CLASS})\) |"
    r"\[STREAM_FAILED\] Query \[[\w =,-]+\] terminated with exception: |"
    r"Job aborted due to stage failure: Task [\d.]+ in stage [\d.]+ failed \d+ times, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^()\n]*\): |"
    r"Exception thrown in awaitResult: ?|assertion failed: |Caused by:? |"
    r"An error occurred while calling [\w.$:]+\.\n: |"
    r"An exception was raised by the Python Proxy\. Return Message: |"
    r"\s*(?:\[PYTHON_EXCEPTION\] )?An exception was thrown from the Python worker(?:: |\. [^\n]*\n)|"
    r"\[FOREACH_(?:BATCH_)?USER_FUNCTION_ERROR\] An error occurred in the user provided function in foreach (?:batch )?"
    r"sink\. Reason: |"
    r"\[PYTHON_(?:STREAMING_)?DATA_SOURCE_(?:RUNTIME_)?ERROR\] Failed [^\n:]+: |"
    r"\[STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE\] Streaming Runner initialization failed, returned -?\d+\. "
    r"Cause: |"
    r"\[CANNOT_LOAD_STATE_STORE\.\w+\] An error occurred during loading state\.\s*|"
    r"\[BATCH_METADATA_NOT_FOUND\] |\[STREAMING_CHECKPOINT_MISSING_METADATA_FILE\] |"
    # the lines of the frames are indented; the line behind them tells what was raised
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*"
)

#: The class that a cause begins with, if its message holds no record at all, however it goes on.
_HOLDS_NO_RECORD = re.compile(r"(?:org\.apache\.(?:hadoop|kafka)|java\.(?:io|net|nio))\.[\w.$]+:")


def heads_of(error: BaseException) -> list[str]:
    """The places in an exception of Spark at which Spark's own words begin, each with the text from there on.

    Args:
        error: as PySpark, Py4J or Spark Connect raise it, or an exception of Python.

    Returns:
        For each cause, the outermost first: the text from its class on, then from its message on, and from whatever
        that message introduces.

    Example: a task that ends with "``java.net.ConnectException: refused``" gives, among others, that text and
    "``refused``"; "``ValueError: [CONCURRENT_QUERY]``" gives only itself.
    """
    causes: list[str] = []
    nested: Any = error
    for _ in range(_MAX_CAUSES):
        found = _java_causes(nested)
        causes += found or _written_causes(nested)
        # an exception that PySpark has made of texts may have causes of which the JVM's are at hand
        nested = None if found else getattr(nested, "_cause", None)
        if not isinstance(nested, BaseException):
            break
    return [head for cause in causes for head in _heads(cause[:_MAX_HEAD])]


#: The sentence in which Spark names the task whose failure has ended a job.
_FAILED_TASK = re.compile(
    r"Job aborted due to stage failure: Task [\d.]+ in stage [\d.]+ failed \d+ times, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID (\d{1,19})\) "
)


def tasks_of(heads: Iterable[str]) -> set[int]:
    """The numbers (TID) of the tasks whose failures Spark names as the causes, in what `heads_of` gives."""
    return {int(found[1]) for found in map(_FAILED_TASK.match, heads) if found is not None}


def raised_within(error: BaseException, method: str) -> bool:
    """Whether a method of the JVM was running as a cause of an exception was raised; False if that is not known.

    Args:
        error: as for `heads_of`.
        method: the end of its class's name, and its own: ``StreamMetadata$.read``.
    """
    # under Spark Connect: the first frames of a written trace, before which there is only the name of a class
    written = re.match(r"[\w.$]+\n((?:\tat .*\n?)*)", str(getattr(error, "_stacktrace", None) or ""))
    frames = re.findall(r"\tat ([^(\n]*)", written.group(1)) if written is not None else []
    try:
        for cause in _throwables(error):
            frames += [str(frame.toString()).partition("(")[0] for frame in cause.getStackTrace()[:_MAX_FRAMES]]
    except Exception:
        # the JVM is gone: nothing more can be learned
        return False
    return any(frame.endswith(method) for frame in frames)


def _throwables(error: BaseException) -> list[Any]:
    """The exception of the JVM with its causes; empty if it has none or is not at hand."""
    throwable: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[Any] = []
    while throwable is not None and len(found) < _MAX_CAUSES:
        found.append(throwable)
        throwable = throwable.getCause()
    return found


def _java_causes(error: BaseException) -> list[str]:
    try:
        return [f"{cause.getClass().getName()}: {cause.getMessage() or ''}" for cause in _throwables(error)]
    except Exception:
        # the JVM is gone, or the attributes of the exception are not those of PySpark
        return []


def _written_causes(error: BaseException) -> list[str]:
    """The causes as far as they can be read from texts: a line that looks like a cause may be one of a record, unless
    all before it hold none."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    causes = [f"{name}: {error}"]
    for text in (causes[0], getattr(error, "_stacktrace", None)):
        head, found = str(text or ""), list[str]()
        while len(found) < _MAX_CAUSES and _goes_on(head):
            _, _, head = head.partition("\nCaused by: ")
            found.append(head)
        causes += found
    return causes


def _goes_on(cause: str) -> bool:
    """Whether the next line that looks like the beginning of a cause is one."""
    heads = _heads(cause.partition("\nCaused by: ")[0])
    frames = re.sub(r"\n?\t(?:at |\.\.\.).*", "", heads[-1])
    return "\nCaused by: " in cause and (not frames.strip() or any(map(_HOLDS_NO_RECORD.match, heads)))


def _heads(cause: str) -> list[str]:
    found = [cause]
    while len(found) < _MAX_CAUSES and (before := _BEFORE.match(cause)) is not None and before.end():
        cause = cause[before.end() :]
        found.append(cause)
    return found
