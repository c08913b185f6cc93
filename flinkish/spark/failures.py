"""Translates what Spark raises into typed errors: the error that a worker has raised, if the text holds one and it is
signed, else the first known cause.

What decides whether the job is started again, and from where, is only taken from Spark's own words (`heads_of`), since
the text may quote a record. What is worth a retry like any failure of Spark is looked for in the whole text: it only
chooses the words of the error.

A damaged file of the query (its checkpoint) is found out by the messages of Spark 4.0 and 4.2, tried for each kind of
file: files with flipped bits and truncated files fail their checksum (local file systems and HDFS keep one), emptied
files are incomplete logs or end too early, deleted files do not exist. Rule: damage is what says so. That state cannot
be loaded is none by itself, since the reason may be anything that Spark needs for it.
"""

from __future__ import annotations

import re

from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    CorruptStateError,
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
    UserCodeError,
)
from flinkish.runtime.job.failure import NOTHING_COMMITTED, uncommitted, user_traceback
from flinkish.spark.causes import heads_of, raised_within, tasks_of
from flinkish.spark.executor_status import meaning_of
from flinkish.spark.worker import typed_failure

_LENGTH = 600

#: What Python raises when its code is wrong. In the driver that is flinkish's code: errors of user code are wrapped
#: before they get here.
_BUGS = (AssertionError, AttributeError, LookupError, NameError, TypeError)

#: What Spark's own words begin with where somebody else has changed a Delta table while it was written.
_CONFLICT = (
    r"\[DELTA_(?:CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED|SCHEMA_CHANGED\w*)\]|"
    r"io\.delta\.exceptions\.(?:Concurrent\w+|MetadataChanged|ProtocolChanged)Exception"
)

_REFUSED = "the Delta table refuses the rows"
_REFUSED_HINT = "mend or filter such records before the sink, or alter the table"

#: What is said if the session is gone.
SPARK_HAS_GONE = "Spark has gone: its JVM or its server has ended, or the session was stopped"
SPARK_HAS_GONE_HINT = "start the same job again in a new driver; it goes on from the last committed epoch"

#: What Spark's own words begin with (`heads_of`) -> class, what happened, what to do; the first pattern that matches
#: counts.
_BEGINS: tuple[tuple[str, type[FlinkishError], str, str], ...] = (
    (
        r"No module named '?flinkish(?!\w)",
        EnvironmentVersionError,
        "the Python of Spark's workers (or, under Spark Connect, of its server) has no flinkish",
        "install flinkish there in this version, or put it on their PYTHONPATH",
    ),
    (
        r"No module named '?(?:pyspark|py4j|pyarrow|pandas|numpy)(?!\w)|"
        r"\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\]",
        EnvironmentVersionError,
        "the Python of Spark's workers lacks a package that flinkish needs",
        "let the workers run a Python that has it: PYSPARK_PYTHON=/path/of/python in the environment of the driver, "
        "a path that exists on each machine",
    ),
    (
        r"No module named ",
        ProgramError,
        "the Python of Spark's workers lacks a module of the program",
        "ship it with env.add_python_file or env.set_python_requirements, or install it there",
    ),
    (
        r'Cannot run program "[^"\n]*python[^"\n]*"',
        EnvironmentVersionError,
        "a machine of the cluster does not have the Python that the executors are to run",
        "name one that each machine has: PYSPARK_PYTHON=/path/of/python in the environment of the driver",
    ),
    (
        r"\[PYTHON_VERSION_MISMATCH\]",
        EnvironmentVersionError,
        "the executors run another version of Python than the driver",
        "name a Python of the driver's version: PYSPARK_PYTHON=/path/of/python in the environment of the driver, a "
        "path that exists on each machine",
    ),
    (
        r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: delta\b|"
        r"\[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG",
        EnvironmentVersionError,
        "the Spark session has no Delta Lake, in which flinkish stores checkpoints, savepoints and history",
        "start Spark with Delta's jar and its two settings (spark.sql.extensions, spark.sql.catalog.spark_catalog), or "
        "let flinkish make the session",
    ),
    (
        # Spark's daemon on an executor cannot make its socket; later tasks there fail at a path that it never had
        r"\s*Error from python worker:\n(?:  [^\n]*\n)*?  OSError: AF_UNIX path too long|"
        r"java\.lang\.NullPointerException\n(?:\s+at [^\n]*\n){0,5}?\s+at [\w./]*\.UnixDomainSocketAddress\.of\(",
        ConfigurationError,
        "the path of the socket of Spark's Python workers is too long for an executor's machine, which takes 107 bytes",
        "set spark.python.unix.domain.socket.dir to a short directory that each machine has, such as /tmp",
    ),
    (
        r"py4j\.protocol\.Py4JNetworkError|Answer from Java side is empty|"
        r"Cannot call methods on a stopped SparkContext|Job \d+ cancelled because SparkContext was shut ?down|"
        r"SparkContext (?:has been|was) shut ?down|\[(?:INVALID_HANDLE\.)?SESSION_(?:CLOSED|CHANGED|NOT_FOUND)\b",
        SparkLostError,
        SPARK_HAS_GONE,
        SPARK_HAS_GONE_HINT,
    ),
    (
        r"\[?KAFKA_DATA_LOSS\b|org\.apache\.kafka\.[\w.]+\.OffsetOutOfRangeException|"
        r"Partition \S+ offset was changed|Some data may have been lost|"
        r"Cannot fetch (?:offset|records) [^\n]*Some data may have been lost",
        FinalOperationError,
        "Kafka no longer has records that the job has not read (retention, or the topic was made anew)",
        "start from a savepoint or from the earliest offsets in a new job directory, or call the source's "
        "set_fail_on_data_loss(False) to go on without them",
    ),
    (
        r"\[(?:CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY)\]|"
        r"(?:java\.lang\.IllegalArgumentException: )?Cannot start query with [^\n]* already active|"
        r"Multiple streaming queries are concurrently using",
        FencedError,
        "another query writes to this job directory",
        "stop the other driver, or give this job a directory of its own",
    ),
    (
        r"\[STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE\b|\[STATE_STORE_INVALID_CONFIG_AFTER_RESTART\b|"
        r"There are \[[^]]*\] sources in the checkpoint offsets and now there are",
        IncompatibleJobError,
        "the query does not fit what it has kept in the job directory",
        "take a savepoint with the old program and start the new one from it (-s) elsewhere, or undo the change",
    ),
    (
        r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: delta\b",
        EnvironmentVersionError,
        "the Spark session has no Delta Lake",
        "let flinkish make the session, or add Delta's package for this Spark to yours (spark.jars.packages)",
    ),
    (
        # what its constraints, generated columns and types say of rows, and what it lets be done with those it has
        r"\[DELTA_(?:VIOLATE_\w+|\w*NOT_NULL_\w+|EXCEED_CHAR_VARCHAR_LIMIT|CANNOT_MODIFY_APPEND_ONLY|FAILED_TO_MERGE_\w+|"
        r"MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE|METADATA_MISMATCH|\w*GENERATED_\w+|\w*IDENTITY_\w+|"
        r"REPLACE_WHERE_MISMATCH|\w*COLUMN_NOT_FOUND\w*|MERGE_\w+)\]",
        ProgramError,
        _REFUSED,
        _REFUSED_HINT,
    ),
    (
        r"\[DELTA_(?:UNSUPPORTED_FEATURES\w*|INVALID_PROTOCOL_VERSION|UNRECOGNIZED_\w*FEATURE\w*)\]",
        EnvironmentVersionError,
        "a Delta table has features that the Delta Lake of this Spark does not know",
        "run the job with a newer Delta Lake, or let the table's owner take the features out (ALTER TABLE ... DROP "
        "FEATURE)",
    ),
    (_CONFLICT, RetryableError, "a Delta table was changed by somebody else meanwhile", "start the same job again"),
    (
        r"\[(?:DELTA_SOURCE_TABLE_IGNORE_CHANGES|DELTA_SOURCE_IGNORE_DELETE|DELTA_VERSIONS_NOT_CONTIGUOUS|"
        r"DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE)",
        FinalOperationError,
        "a Delta table that the job reads was changed in a way that a stream cannot follow",
        "start a new job from the table as it is now",
    ),
)

#: What Spark's own words begin with where the table of a sink cannot hold a value of the rows. Elsewhere the same may
#: be said of a query that a program reads.
_MISFIT = r"\[(?:CAST_OVERFLOW|CAST_INVALID_INPUT|NUMERIC_VALUE_OUT_OF_RANGE|EXCEED_LIMIT_LENGTH|NOT_NULL_ASSERT)\w*\b"

#: What the text of a failure holds somewhere -> class, what happened, what to do. All are worth a retry, as failures
#: are of which nothing is known: a record that is quoted in the text can only change the words.
_HOLDS: tuple[tuple[str, type[FlinkishError], str, str], ...] = (
    (
        r"org\.apache\.kafka\.common\.errors\.TimeoutException|Failed to (construct|create new) [Kk]afka|"
        r"No resolvable bootstrap urls|UnknownTopicOrPartition",
        ConnectionFailedError,
        "Kafka cannot be reached",
        "check bootstrap servers, topic and network; then start the same job again",
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
        r"with indeterminate output was failed and retried|cannot rollback (completed|a running) result stage|"
        r"indeterminate results from old attempt|FetchFailedException",
        RetryableError,
        "an executor was lost with output of the epoch that Spark cannot make again by itself",
        "the epoch must be run again as a whole: by the restart strategy, or start the same job again",
    ),
    (
        # a process that runs no task of a stage
        r"\A(?!.*\bTask \d+ in stage ).*Python worker failed to connect back",
        RetryableError,
        "the process that plans the epochs, beside the driver, has not begun within Spark's ten seconds",
        "look what keeps the driver's machine busy, or give it more cores; then start the same job again: it goes on "
        "from the last committed epoch",
    ),
    (
        r"Python worker (exited unexpectedly|failed to connect back)|ExecutorLostFailure|"
        r"Job aborted due to stage failure: Task [^:]* lost",
        RetryableError,
        "a Python worker or an executor was lost",
        "start the same job again; it goes on from the last committed epoch",
    ),
    (
        r"OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY",
        OperationError,
        "Spark has run out of memory",
        "give the driver and the executors more heap (taskmanager.memory.task.heap.size where flinkish starts Spark, "
        "else spark.driver.memory, spark.executor.memory), or take smaller epochs "
        "(flinkish.epoch.max-records-per-source); then start the same job again",
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
)

#: Why an executor was lost, in Spark's words.
_LOST = re.compile(r"ExecutorLostFailure \([^\n]{0,200}?\) Reason: ([^\n]{0,500})")

_FILE = r"(?P<file>(?:\w+:)?/[^\s,\]]+)"

#: Messages that name the damaged file.
_NAMED = (
    rf"Checksum error: {_FILE} at ",
    rf"Failed to read log file {_FILE}\.(?: |$)",
    rf"[Uu]nable to find batch {_FILE}\.(?:\s|$)",
    rf"Error reading delta file {_FILE}(?: of |$)",
    rf"Error reading streaming state file of {_FILE} does not exist",
    rf"Error reading snapshot file {_FILE} of ",
)

#: What says that the state of the query cannot be loaded, and the reason for it that names the file.
_NO_STATE = r"\[CANNOT_LOAD_STATE_STORE\b"
_NO_STATE_FILES = (rf"[Ff]ile {_FILE} does not exist", rf"No such file or directory: {_FILE}")

#: The message that names only the query's directory: its metadata file is missing.
_NO_METADATA = rf"Checkpoint location {_FILE} is in an inconsistent state: the metadata file is missing"

#: Messages of damage that name no file.
_UNNAMED = (
    r"\[CANNOT_LOAD_STATE_STORE\.(?:CANNOT_READ_\w+|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT|INVALID_CHECKPOINT_LINEAGE|"
    r"SNAPSHOT_PARTITION_ID_NOT_FOUND|UNEXPECTED_FILE_SIZE|(?:KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE)\]|"
    r"(?:The )?[Ss]tate store [^\n]*(?:corrupt|does not exist)|\[STATE_STORE_\w*CHECKSUM|"
    r"\[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED\]|\[STREAMING_CHECKPOINT_MISSING_METADATA_FILE\]|"
    r"(?:\[\w+\] )?Log file was malformed|batch \d+ doesn't exist|\[BATCH_METADATA_NOT_FOUND\]"
)

#: The method that reads the metadata file of a query: no message says what is wrong with the file.
_READS_METADATA = ".StreamMetadata$.read"

#: What is raised where the content of a file is not what was written. Whatever else keeps Spark from reading a file is
#: no damage: a server that is away, an endpoint of Spark's that does not exist, too little memory.
_BAD_CONTENT = (
    r"\(?(?:java\.io\.(?:EOF|StreamCorrupted|UTFDataFormat|CharConversion)Exception|java\.nio\.charset\.\w+|"
    r"java\.util\.zip\.\w+|java\.lang\.NegativeArraySizeException|org\.apache\.hadoop\.fs\.ChecksumException|"
    r"net\.jpountz\.lz4\.\w+|com\.github\.luben\.zstd\.\w+|org\.xerial\.snappy\.\w+|com\.ning\.compress\.\w+|"
    r"com\.fasterxml\.jackson\.[\w.]+|org\.json4s\.[\w.]+)(?!\w)|"
    r"(?:java\.io\.IOException: )?Stream (?:is corrupted|ended prematurely)|"
    r"org\.rocksdb\.RocksDBException: (?:Corruption|Checksum mismatch|.*checksum)"
)

#: What is raised where a file of a table is missing, or is not what was written.
_BAD_TABLE = (
    _BAD_CONTENT,
    _NAMED[0],
    *_NO_STATE_FILES,
    r"\[PATH_NOT_FOUND\] Path does not exist: \S+\.(?:parquet|json)\b|java\.io\.FileNotFoundException|"
    r"org\.apache\.parquet\.[\w.$]+|"
    r"(?:java\.lang\.RuntimeException: )?\S+ is not a Parquet file",
    r"\[(?:CANNOT_READ_FILE_FOOTER|FAILED_READ_FILE\.(?:FILE_NOT_EXIST|CANNOT_READ_FILE_FOOTER|PARQUET_\w+))\]",
    r"\[DELTA_(?:TRUNCATED_TRANSACTION_LOG|STATE_RECOVER_ERROR|LOG_FILE_\w+|\w*CHECKPOINT_\w+|VERSIONS_NOT_CONTIGUOUS|"
    r"PATH_DOES_NOT_EXIST|TABLE_NOT_FOUND|MISSING_\w+|\w+_FILE_NOT_FOUND\w*)\]",
)

#: Reasons for which a good file could not be read: with one of them, a message of `_UNNAMED` is no sign of damage.
_PASSING = re.compile(
    r"ConnectException|SocketTimeoutException|UnknownHostException|Connection (?:refused|reset)|No space left|"
    r"OutOfMemoryError|InterruptedException|ClosedByInterrupt|Permission denied|AccessControlException"
)

_DAMAGE_HINT = "restore the file from a copy, or the job from its last checkpoint or savepoint"


def translate(error: BaseException, where: str, secret: bytes | None = None, epoch: int | None = None) -> FlinkishError:
    """The typed error for an exception of a query or a batch job.

    Args:
        where: names the job or another place in the error, if the error does not name it yet.
        secret: of the deployment, by which errors of its workers are known; None: no worker raises any.
        epoch: in which the exception was raised; None: outside of epochs, or by the query as a whole.
    """
    if isinstance(error, FlinkishError):
        return _located(error, where)
    text, heads = f"{type(error).__name__}: {error}", heads_of(error)
    typed = None if secret is None else typed_failure(text, secret, epoch, tasks_of(heads))
    if typed is not None:
        # the error of a task names the epoch itself
        said = epoch is not None and where == uncommitted(epoch) and typed.hint == NOTHING_COMMITTED
        return typed if said else _located(typed, where)
    translated = _damage(error, text, heads) or _known(error, text, heads, where) or _unknown(error, text, where)
    translated.__cause__ = error
    return _located(translated, where)


def failure_of_frame_sink(error: BaseException, secret: bytes, epoch: int, hint: str) -> BaseException:
    """The typed error for what the ``write_frame`` of a sink has raised, in one line; as it is if neither Spark nor
    Delta has raised it. If it tells nothing of who must act, it is that of the user code which has called Spark.

    Args:
        secret, epoch: as for `translate`.
        hint: says what to do about user code that fails.
    """
    if isinstance(error, FlinkishError) or not (raised_by_spark(error) or _jvm_is_gone(error)):
        return error
    text, heads = f"{type(error).__name__}: {error}", heads_of(error)
    typed = typed_failure(text, secret, epoch, tasks_of(heads)) or _known(error, text, heads, "")
    if typed is None and _called_by_user_code(error):
        said = f"{type(error).__name__}: {_first_lines(text)}"
        typed = UserCodeError(f"{said} in user code", user_traceback=user_traceback(error, said), hint=hint)
    elif typed is None:
        misfit = next((head for head in heads if re.match(_MISFIT, head)), None)
        typed = _unknown(error, text, "") if misfit is None else _refusal(_first_lines(misfit))
    typed.__cause__ = error
    return typed


def is_conflict(error: BaseException) -> bool:
    """Whether a write has failed only since somebody else has changed the table meanwhile."""
    return raised_by_spark(error) and any(re.match(_CONFLICT, head) for head in heads_of(error))


def _refusal(gist: str) -> ProgramError:
    return ProgramError(f"{_REFUSED}: {gist}", hint=_REFUSED_HINT)


def _known(error: BaseException, text: str, heads: list[str], where: str) -> FlinkishError | None:
    if _jvm_is_gone(error):
        heads = ["py4j.protocol.Py4JNetworkError"]
    for pattern, kind, what, hint in _BEGINS:
        begins = next((head for head in heads if re.match(pattern, head)), None)
        if begins is not None:
            gist = _first_lines(begins if begins.startswith("[DELTA_") else text)
            return kind(f"{what}: {gist}", where=where, hint=hint)
    for pattern, kind, what, hint in _HOLDS:
        if re.search(pattern, text, re.DOTALL):
            lost = _LOST.search(text)
            meaning = "" if lost is None else meaning_of(lost[1])
            return kind(f"{what}: {_first_lines(text)}", where=where, hint=f"{meaning}; {hint}" if meaning else hint)
    return None


def _unknown(error: BaseException, text: str, where: str) -> FlinkishError:
    gist = _first_lines(text)
    if type(error).__name__ in ("AnalysisException", "ParseException"):
        return ProgramError(
            f"Spark refuses the query: {gist}", where=where, hint="correct the program's DataFrames and their schemas"
        )
    if isinstance(error, _BUGS):
        return InternalError(gist, where=where, hint="please report this")
    return OperationError(f"the Spark query failed: {gist}", where=where)


def _damage(error: BaseException, text: str, heads: list[str]) -> CorruptStateError | None:
    """The error that tells which file of the query is damaged or missing; None if Spark reports something else."""

    def begins(pattern: str) -> re.Match[str] | None:
        return next(filter(None, (re.match(pattern, head) for head in heads)), None)

    patterns = (*_NAMED, *_NO_STATE_FILES) if begins(_NO_STATE) else _NAMED
    named = next(filter(None, map(begins, patterns)), None)
    if named:
        return _damaged(_plain(named.group("file")))
    found = begins(_NO_METADATA)
    if found:
        return _damaged(_plain(found.group("file")) + "/metadata")
    if _PASSING.search(" ".join(heads)):
        return None
    reads = begins(_NO_STATE) or raised_within(error, _READS_METADATA)
    if not begins(_UNNAMED) and not (reads and begins(_BAD_CONTENT)):
        return None
    innermost = [head for head in heads if head.strip()][-1]
    return _damaged("", innermost.split("\n")[0])


def tells_of_bad_table(error: BaseException) -> bool:
    """Whether an exception of a query says that a file of the table that it reads is missing, or is not what was
    written. Whatever else keeps Spark from reading a table is no damage."""
    heads = heads_of(error)
    if _PASSING.search(" ".join(heads)):
        return False
    return any(re.match(pattern, head) for pattern in _BAD_TABLE for head in heads)


def _damaged(file: str, gist: str = "") -> CorruptStateError:
    what = f"the file {file}" if file else f"a file of the query's own checkpoint ({gist[:200]})"
    error = CorruptStateError(f"{what} is damaged or missing", hint=_DAMAGE_HINT)
    error.file = file
    return error


def _plain(file: str) -> str:
    """The path of a file, without the scheme ``file:`` if it is local."""
    return "/" + file[len("file:") :].lstrip("/") if file.startswith("file:") else file


def raised_by_spark(error: BaseException) -> bool:
    """Whether Spark has raised the exception, and not flinkish or user code in the driver."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _called_by_user_code(error: BaseException) -> bool:
    """Whether a function of the user has called what has raised the exception."""
    trace, ours = error.__traceback__, ("flinkish.", "pyspark.", "py4j.", "delta.", "contextlib")
    while trace is not None:
        if not trace.tb_frame.f_globals.get("__name__", "").startswith(ours):
            return True
        trace = trace.tb_next
    return False


def _located(error: FlinkishError, where: str) -> FlinkishError:
    if where not in error.where:
        error.where = "; ".join(part for part in (where, error.where) if part)
    return error


def _jvm_is_gone(error: BaseException) -> bool:
    """Whether the socket to the driver's own JVM has failed: Py4J lets such errors through as they are."""
    trace = error.__traceback__ if isinstance(error, (ConnectionError, EOFError)) else None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        trace = trace.tb_next
    return False


def _first_lines(text: str) -> str:
    # tracebacks are nested (driver's callback, its action, worker): the last one is the cause
    raised = _raised(text)
    if raised:
        return raised[:_LENGTH]
    lines = [line.strip() for line in text.split("\n") if line.strip() and not line.strip().startswith("at ")]
    return " ".join(lines)[:_LENGTH]


def _raised(text: str) -> str:
    """What the last traceback in a text says was raised: the line behind the indented lines of its frames; "" if there
    is none."""
    raised, in_frames = "", False
    for line in text.split("\n"):
        if not line.startswith((" ", "\t")):
            if in_frames and line.strip():
                raised = line
            in_frames = False
        elif line.lstrip(" \t").startswith('File "'):
            in_frames = True
    return raised
