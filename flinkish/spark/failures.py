"""Translates what Spark raises into typed errors: the error that a worker has raised, if the text holds one, else the
first known cause that its text matches."""

from __future__ import annotations

import re

from flinkish.errors import (
    ConnectionFailedError,
    EnvironmentVersionError,
    FencedError,
    FinalOperationError,
    FlinkishError,
    IncompatibleJobError,
    InternalError,
    OperationError,
    ProgramError,
    RetryableError,
    SparkLostError,
)
from flinkish.spark.damage import damage_in
from flinkish.spark.worker import own_secret, typed_failure

_LENGTH = 600

#: What Python raises when its code is wrong. In the driver that is flinkish's code: errors of user code are wrapped
#: before they get here.
_BUGS = (AssertionError, AttributeError, LookupError, NameError, TypeError)

#: (pattern in the text, class, what happened, what to do); the first pattern that matches counts
_KNOWN: tuple[tuple[str, type[FlinkishError], str, str], ...] = (
    (
        r"No module named '?flinkish(?!\w)",
        EnvironmentVersionError,
        "the Python of Spark's workers (or, under Spark Connect, of its server) has no flinkish",
        "install flinkish there in this version, or put it on their PYTHONPATH",
    ),
    (
        r"Py4JNetworkError|Answer from Java side is empty|stopped SparkContext|SparkContext (has been|was) shut ?down|"
        r"SESSION_(CLOSED|CHANGED|NOT_FOUND)",
        SparkLostError,
        "Spark has gone: its JVM or its server has ended, or the session was stopped",
        "start the same job again in a new driver; it goes on from the last committed epoch",
    ),
    (
        r"KAFKA_DATA_LOSS|OffsetOutOfRange|offsets? .* (are|is|was) (lost|changed)|Some data may have been lost",
        FinalOperationError,
        "Kafka no longer has records that the job has not read (retention, or the topic was made anew)",
        "start from a savepoint or from the earliest offsets in a new job directory, or call the source's "
        "set_fail_on_data_loss(False) to go on without them",
    ),
    (
        r"org\.apache\.kafka\.common\.errors\.TimeoutException|Failed to (construct|create new) [Kk]afka|"
        r"No resolvable bootstrap urls|UnknownTopicOrPartition",
        ConnectionFailedError,
        "Kafka cannot be reached",
        "check bootstrap servers, topic and network; then start the same job again",
    ),
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|another streaming query|CONCURRENT_QUERY|already active",
        FencedError,
        "another query writes to this job directory",
        "stop the other driver, or give this job a directory of its own",
    ),
    (
        r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_INVALID_CONFIG_AFTER_RESTART|"
        r"sources in the checkpoint offsets and now there are",
        IncompatibleJobError,
        "the query does not fit what it has kept in the job directory",
        "take a savepoint with the old program and start the new one from it (-s) elsewhere, or undo the change",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        OperationError,
        "no space left on a disk",
        "make space (at the job directory, Spark's scratch directories or the sinks), then start the same job again: "
        "it goes on from the last committed epoch",
    ),
    (
        r"Read-only file system|Permission denied|Operation not permitted|AccessDenied|Mkdirs failed|"
        r"Cannot create directory|Not a directory|ParentNotDirectoryException|FileAlreadyExistsException",
        OperationError,
        "a directory cannot be written",
        "let this user write there, then start the same job again: it goes on from the last committed epoch",
    ),
    (
        r"Python worker (exited unexpectedly|failed to connect back)|ExecutorLostFailure|"
        r"Job aborted due to stage failure: Task .* lost",
        RetryableError,
        "a Python worker or an executor was lost",
        "start the same job again; it goes on from the last committed epoch",
    ),
    (
        r"OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY",
        OperationError,
        "Spark has run out of memory",
        "give the driver and the executors more (spark.driver.memory, spark.executor.memory), or take smaller epochs "
        "(flinkish.epoch.max-records-per-source); then start the same job again",
    ),
    (
        r"DELTA_SOURCE_TABLE_IGNORE_CHANGES|DELTA_SOURCE_IGNORE_DELETE|DELTA_VERSIONS_NOT_CONTIGUOUS|"
        r"DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE",
        FinalOperationError,
        "a Delta table that the job reads was changed in a way that a stream cannot follow",
        "start a new job from the table as it is now",
    ),
    (
        r"DELTA_CONCURRENT_|Concurrent(Append|Write|DeleteRead|Transaction)Exception|DELTA_SCHEMA_CHANGED|"
        r"MetadataChangedException",
        RetryableError,
        "a Delta table was changed by somebody else meanwhile",
        "start the same job again",
    ),
    (
        r"Connection (refused|reset|timed out)|ConnectException|SocketTimeoutException|UnknownHostException|"
        r"NoRouteToHostException|Broken pipe",
        ConnectionFailedError,
        "a connection could not be made, or was lost",
        "check the server and the network; then start the same job again",
    ),
    (
        r"PATH_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND|DELTA_(TABLE|PATH)_(NOT_FOUND|DOES_NOT_EXIST)|FileNotFoundException",
        OperationError,
        "a path or a table that the job reads is not there",
        "check its name, or make it; then start the same job again",
    ),
    (
        r"^(AnalysisException|ParseException): ",
        ProgramError,
        "Spark refuses the query",
        "correct the program's DataFrames and their schemas",
    ),
)


def translate(error: BaseException, where: str, secret: bytes | None = None) -> FlinkishError:
    """The typed error for an exception of a query or a batch job.

    Args:
        where: names the job or another place in the error, if the error does not name it yet.
        secret: of the driver that the work was for, by which errors of its workers are known; None: of this process.
    """
    if isinstance(error, FlinkishError):
        return _located(error, where)
    text = _text(error)
    typed = typed_failure(text, own_secret() if secret is None else secret)
    if typed is not None:
        return _located(typed, where)
    damage = damage_in(text)
    if damage is not None:
        damage.__cause__ = error
        return _located(damage, where)
    for pattern, kind, what, hint in _KNOWN:
        if re.search(pattern, text, re.DOTALL):
            translated = kind(f"{what}: {_first_lines(text)}", where=where, hint=hint)
            break
    else:
        if isinstance(error, _BUGS):
            translated = InternalError(_first_lines(text), where=where, hint="please report this")
        else:
            translated = OperationError(f"the Spark query failed: {_first_lines(text)}", where=where)
    translated.__cause__ = error
    return translated


def raised_by_spark(error: BaseException) -> bool:
    """Whether Spark has raised the exception, and not flinkish or user code in the driver."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _located(error: FlinkishError, where: str) -> FlinkishError:
    if where not in error.where:
        error.where = "; ".join(part for part in (where, error.where) if part)
    return error


def _text(error: BaseException) -> str:
    name = "Py4JNetworkError" if _jvm_is_gone(error) else type(error).__name__
    return f"{name}: {error}"


def _jvm_is_gone(error: BaseException) -> bool:
    """Whether the socket to the driver's own JVM has failed: Py4J lets such errors through as they are."""
    trace = error.__traceback__ if isinstance(error, (ConnectionError, EOFError)) else None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        trace = trace.tb_next
    return False


#: The frames of a traceback, followed by the line that says what was raised.
_FRAMES = re.compile(r'(?:^[ \t]+File ".*\n(?:[ \t]+.*\n)*)+(?P<raised>\S.*)$', re.MULTILINE)


def _first_lines(text: str) -> str:
    # tracebacks are nested (driver's callback, its action, worker): the last one is the cause
    raised = [found.group("raised") for found in _FRAMES.finditer(text)]
    if raised:
        return raised[-1][:_LENGTH]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return " ".join(lines)[:_LENGTH]
