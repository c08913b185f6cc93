"""From what Spark raises to typed errors: a worker's own error first, then the causes that can be told apart."""

from __future__ import annotations

import re

from flinkish.errors import (
    ConnectionFailedError,
    CorruptStateError,
    EnvironmentVersionError,
    FencedError,
    FinalOperationError,
    FlinkishError,
    OperationError,
    RetryableError,
)
from flinkish.spark.worker import typed_failure

_LENGTH = 600

#: (pattern in the text, class, what happened, what to do)
_KNOWN: tuple[tuple[str, type[FlinkishError], str, str], ...] = (
    (
        r"No module named '?flinkish",
        EnvironmentVersionError,
        "the Python of Spark's workers (or, under Spark Connect, of its server) has no flinkish",
        "install flinkish there in this version, or put it on their PYTHONPATH",
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
        r"CANNOT_LOAD_STATE_STORE|state store.*(corrupt|does not exist)|"
        r"Error reading (delta|snapshot|streaming state) file|CANNOT_READ_.*FILE_DOES_NOT_EXIST|STATE_STORE_.*CHECKSUM",
        CorruptStateError,
        "stored state cannot be read",
        "restore the job from its last savepoint",
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
)


def translate(error: BaseException, where: str) -> FlinkishError:
    """The typed error for whatever a query or a batch job raised."""
    if isinstance(error, FlinkishError):
        return _located(error, where)
    text = _text(error)
    typed = typed_failure(text)
    if typed is not None:
        return _located(typed, where)
    for pattern, kind, what, hint in _KNOWN:
        if re.search(pattern, text, re.DOTALL):
            translated = kind(f"{what}: {_first_lines(text)}", where=where, hint=hint)
            break
    else:
        translated = OperationError(f"the Spark query failed: {_first_lines(text)}", where=where)
    translated.__cause__ = error
    return translated


def _located(error: FlinkishError, where: str) -> FlinkishError:
    if where not in error.where:
        error.where = "; ".join(part for part in (where, error.where) if part)
    return error


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


#: The stretch of a traceback's frames; the line behind it says what was raised.
_FRAMES = re.compile(r'(?:^[ \t]+File ".*\n(?:[ \t]+.*\n)*)+(?P<raised>\S.*)$', re.MULTILINE)


def _first_lines(text: str) -> str:
    # tracebacks lie within each other (driver's callback, its action, worker): the last one is the cause
    raised = [found.group("raised") for found in _FRAMES.finditer(text)]
    if raised:
        return raised[-1][:_LENGTH]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return " ".join(lines)[:_LENGTH]
