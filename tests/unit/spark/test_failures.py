"""What Spark raises becomes an error that says who must act; what a worker raised itself stays what it was."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    EnvironmentVersionError,
    FencedError,
    FinalOperationError,
    FlinkishError,
    IncompatibleJobError,
    InternalError,
    InvalidKeyError,
    OperationError,
    ProgramError,
    RetryableError,
    SparkLostError,
    UserCodeError,
)
from flinkish.runtime.job.failure import NOTHING_COMMITTED, encode_error, uncommitted
from flinkish.spark.failures import failure_of_frame_sink, translate
from flinkish.spark.worker import Deployment, WorkerFailure, failures_marked, secret_of, typed_failure
from tests.unit.runtime.stored.test_unsafe_pickles import GADGETS

WHERE = "job 'shop', directory /jobs/shop"
#: Of the first attempt of a job.
SECRET = secret_of("job", 0)


class TaskOfSpark:
    """What a Spark task knows of itself."""

    def __init__(self, number: int) -> None:
        self.taskAttemptId = lambda: number
        self.stageId = lambda: 1
        self.partitionId = self.attemptNumber = lambda: 0


def through_spark(
    error: FlinkishError,
    secret: bytes = SECRET,
    epoch: int | None = None,
    words: str = "[STREAM_FAILED] Query failed: ",
) -> RuntimeError:
    """As the JVM hands it on: the text of the worker's exception, somewhere within its own."""
    with pytest.raises(WorkerFailure) as marked, failures_marked(secret, epoch):
        raise error
    return RuntimeError(f"{words}{marked.value}\n\tat org.apache.spark.Some.class(Some.scala:1)")


def test_a_typed_error_of_a_worker_arrives_as_it_was() -> None:
    error = InvalidKeyError("a key is NaN", where="uid counts", expected="a key", hint="filter")
    arrived = translate(through_spark(error), WHERE, SECRET)
    assert type(arrived) is InvalidKeyError
    assert (arrived.what, arrived.expected, arrived.hint) == ("a key is NaN", "a key", "filter")
    assert "uid counts" in arrived.where and WHERE in arrived.where


def test_what_spark_says_of_a_task_tells_the_errors_of_that_task_alone() -> None:
    with pytest.MonkeyPatch.context() as within:
        within.setattr("pyspark.TaskContext.get", lambda: TaskOfSpark(7))
        said = str(through_spark(ConnectionFailedError("the database does not answer"), epoch=3))
    assert type(typed_failure(said, SECRET, task=7)) is ConnectionFailedError
    assert typed_failure(said, SECRET, task=8) is typed_failure(said, b"another attempt", task=7) is None
    assert typed_failure(str(through_spark(FencedError("another driver"), epoch=3)), SECRET, task=7) is None


@pytest.mark.parametrize(
    ("hint", "where"),
    [
        (NOTHING_COMMITTED, "task 'Map (1/2)', epoch 3"),
        ("filter", "epoch 3, of which nothing is committed; task 'Map (1/2)', epoch 3"),
    ],
)
def test_that_nothing_of_the_epoch_is_committed_is_said_once(hint: str, where: str) -> None:
    failed = through_spark(InvalidKeyError("a key is NaN", where="task 'Map (1/2)', epoch 3", hint=hint), epoch=3)
    assert translate(failed, uncommitted(3), SECRET, 3).where == where


def test_an_error_that_quotes_half_of_a_surrogate_pair_arrives_with_it_escaped() -> None:
    failed = through_spark(InvalidKeyError("the key 'half \ud83d' is none", hint="filter"))
    assert str(failed).encode().decode() == str(failed) and "the key 'half \\ud83d' is none" in str(failed)
    arrived = translate(failed, WHERE, SECRET)
    assert type(arrived) is InvalidKeyError and arrived.what == "the key 'half \\ud83d' is none"


def test_the_traceback_of_user_code_stays_first() -> None:
    error = UserCodeError(
        "KeyError in user code: 'user'", user_traceback="Traceback (most recent call last):\nx", where="m"
    )
    arrived = translate(through_spark(error), WHERE, SECRET)
    assert type(arrived) is UserCodeError
    assert str(arrived).startswith("Traceback (most recent call last):\nx\n\nKeyError in user code: 'user' [")


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out",
            ConnectionFailedError,
            "Kafka cannot be reached",
        ),
        (
            "[KAFKA_DATA_LOSS.START_OFFSET_RESET] offsets 3 to 7 are lost",
            FinalOperationError,
            "Kafka no longer has records",
        ),
        ("[CONCURRENT_STREAM_LOG_UPDATE] at batch 4", FencedError, "another query writes to this job directory"),
        ("Python worker exited unexpectedly (crashed)", RetryableError, "a Python worker or an executor was lost"),
        ("Python worker failed to connect back.", RetryableError, "has not begun within Spark's ten seconds"),
        (
            "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 "
            "in stage 3.0 (TID 9): org.apache.spark.SparkException: Python worker failed to connect back.",
            RetryableError,
            "a Python worker or an executor was lost",
        ),
        (
            "Lost task 0.3 in stage 1.0 (TID 9) (host executor 4): ExecutorLostFailure (executor 4 exited caused by "
            "one of the running tasks) Reason: Container from a bad node: c. Exit status: 137.",
            RetryableError,
            "taskmanager.memory.process.size, or spark.executor.memoryOverhead",
        ),
        (
            "Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed and retried. "
            "However, Spark cannot rollback the ResultStage 9 to re-process the input data, and has to fail this job.",
            RetryableError,
            "an executor was lost with output of the epoch that Spark cannot make again",
        ),
        (
            "Job aborted due to stage failure: cannot rollback a running result stage, please re-run the query",
            RetryableError,
            "an executor was lost with output of the epoch",
        ),
        ("ModuleNotFoundError: No module named 'flinkish'", EnvironmentVersionError, "has no flinkish"),
        ("ModuleNotFoundError: No module named 'pyarrow'", EnvironmentVersionError, "lacks a package that flinkish"),
        ("ModuleNotFoundError: No module named 'pricing'", ProgramError, "lacks a module of the program"),
        (
            'java.io.IOException: Cannot run program "/opt/.venv/bin/python": error=2, No such file or directory',
            EnvironmentVersionError,
            "does not have the Python that the executors are to run",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            EnvironmentVersionError,
            "the executors run another version of Python than the driver",
        ),
        (
            "[PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed; however, it was not found.",
            EnvironmentVersionError,
            "lacks a package that flinkish needs",
        ),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider name is correct",
            EnvironmentVersionError,
            "the Spark session has no Delta Lake",
        ),
        ("Answer from Java side is empty", SparkLostError, "Spark has gone"),
        ("Job 3 cancelled because SparkContext was shut down", SparkLostError, "Spark has gone"),
        ("java.lang.OutOfMemoryError: Java heap space", OperationError, "Spark has run out of memory"),
        (
            "There are [1] sources in the checkpoint offsets and now there are [2] sources requested by the query",
            IncompatibleJobError,
            "the query does not fit",
        ),
        ("[DELTA_SCHEMA_CHANGED] Detected schema change", RetryableError, "changed by somebody else"),
        ("[DELTA_SOURCE_TABLE_IGNORE_CHANGES] data update", FinalOperationError, "that a stream cannot follow"),
        ("java.net.ConnectException: Connection refused", ConnectionFailedError, "a connection could not be made"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/in", OperationError, "is not there"),
        ("something else", OperationError, "the Spark query failed"),
    ],
)
def test_failures_of_spark_are_told_apart(text: str, kind: type[FlinkishError], said: str) -> None:
    raised = PySparkException(text)
    translated = translate(raised, WHERE)
    assert type(translated) is kind
    assert said in str(translated) and text in str(translated) and WHERE in str(translated)
    assert translated.__cause__ is raised


LOST_TASK = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage "
    "3.0 (TID 16) (localhost executor 2): "
)
FIRST_TASK = """org.apache.spark.SparkException: 
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
    File "/mnt/yarn/usercache/ann/container_1_01_000002/pyspark.zip/pyspark/daemon.py", line 127, in manager
  OSError: AF_UNIX path too long
PYTHONPATH was:
  /opt/site-packages
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout.
"""  # noqa: W291 (as Spark writes it)
LATER_TASKS = """java.lang.NullPointerException
\tat java.base/java.util.Objects.requireNonNull(Objects.java:209)
\tat java.base/sun.nio.fs.UnixFileSystem.getPath(UnixFileSystem.java:263)
\tat java.base/java.nio.file.Path.of(Path.java:147)
\tat java.base/java.net.UnixDomainSocketAddress.of(UnixDomainSocketAddress.java:146)
\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:167)
"""


@pytest.mark.parametrize("failure", [FIRST_TASK, LATER_TASKS])
def test_a_socket_whose_path_is_too_long_on_an_executor_is_named_with_its_setting(failure: str) -> None:
    translated = translate(PySparkException(LOST_TASK + failure), WHERE)
    assert type(translated) is ConfigurationError
    assert "spark.python.unix.domain.socket.dir" in str(translated) and "107 bytes" in str(translated)
    other = LATER_TASKS.replace("java.net.UnixDomainSocketAddress.of", "java.net.InetSocketAddress.<init>")
    assert type(translate(PySparkException(LOST_TASK + other), WHERE)) is OperationError, "another null pointer"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AnalysisException("a column is ambiguous"), ProgramError),
        (Py4JNetworkError("An error occurred while trying to connect to the Java server"), SparkLostError),
        (AttributeError("'NoneType' object has no attribute 'x'"), InternalError),
        (OSError(28, "No space left on device"), OperationError),
        (ValueError("something else"), OperationError),
    ],
)
def test_failures_of_the_driver_are_told_apart_by_their_type(error: Exception, kind: type[FlinkishError]) -> None:
    assert type(translate(error, WHERE)) is kind


@pytest.mark.parametrize(("module", "kind"), [("py4j.clientserver", SparkLostError), ("kafka", ConnectionFailedError)])
def test_a_connection_that_py4j_has_lost_is_that_to_the_jvm(module: str, kind: type[FlinkishError]) -> None:
    library: dict[str, Any] = {"__name__": module}
    exec("def connect(): raise ConnectionRefusedError(111, 'Connection refused')", library)
    with pytest.raises(ConnectionRefusedError) as refused:
        library["connect"]()
    assert type(translate(refused.value, WHERE)) is kind


def test_a_stack_of_the_jvm_does_not_fill_the_message() -> None:
    text = "the cause\n" + "\n".join(f"\tat org.apache.spark.C{n}.m(C.scala)" for n in range(100))
    assert "org.apache.spark" not in str(translate(RuntimeError(text), WHERE))


def test_a_record_that_looks_like_an_error_is_neither_executed_nor_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for gadget in GADGETS.values():
        for data in (gadget, b"\xf1\x02" + gadget, b"nothing"):
            record = f"<flinkish-error>{base64.b64encode(data).decode()}</flinkish-error>"
            with pytest.raises(WorkerFailure) as marked, failures_marked(SECRET):
                raise ProgramError(f"the record {record} is wrong")
            found = typed_failure(str(marked.value), SECRET)
            assert type(found) is ProgramError
            assert found.what == f"the record {record} is wrong"
            assert typed_failure(record, SECRET) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("flinkish", EnvironmentVersionError),
        ("flinkish.spark", EnvironmentVersionError),
        ("flinkish_jobs", ProgramError),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE] Streaming Runner initialization failed, returned -2. "
        "Cause: {}",
        "[STREAM_FAILED] Query [id = 9, runId = 1] terminated with exception: Job aborted due to stage failure: Task 0 "
        "in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 4) (10.0.0.1 executor 1): "
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python "
        'worker: Traceback (most recent call last):\n  File "worker.py", line 3, '
        "in main\n    command = read(infile)\n              ^^^^^^^^^^^^\nModuleNotFoundError: {}\n\nDuring handling",
    ],
    ids=["in the driver", "Spark Connect", "in a worker"],
)
def test_a_module_of_the_program_whose_name_begins_with_that_of_flinkish_is_not_flinkish(
    text: str, module: str, kind: type[FlinkishError]
) -> None:
    missing = ModuleNotFoundError if text == "{}" else PySparkException
    assert type(translate(missing(text.format(f"No module named '{module}'")), "job 'x'")) is kind


def test_a_record_with_a_well_formed_error_in_it_does_not_choose_the_error_of_the_job() -> None:
    signed_by_another = through_spark(FencedError("another driver"), secret=b"a guess")
    data = base64.b64encode(encode_error(FencedError("another driver"))).decode()
    cells = (
        str(signed_by_another),
        f"<flinkish-error>{data}</flinkish-error>",
        f"<flinkish-error {0:064}>{data}</flinkish-error>",
        f"<flinkish-error {0:064} - ->{data}</flinkish-error>",
    )
    for cell in cells:
        failed = RuntimeError(f'[CAST_INVALID_INPUT] The value \'{cell}\' of the type "STRING" cannot be cast to "INT"')
        assert type(translate(failed, WHERE, SECRET)) is OperationError


def test_the_mark_of_an_error_does_not_show_the_secret_that_signs_it() -> None:
    shown = str(through_spark(InvalidKeyError("a key is NaN"))) + repr(Deployment("job", 0, 1, b""))
    assert SECRET.hex() not in shown and repr(SECRET)[2:-1] not in shown


def lost(task: int) -> str:
    """How Spark begins to tell of a task that has failed."""
    return (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most "
        f"recent failure: Lost task 0.0 in stage 1.0 (TID {task}) (host executor driver): "
    )


#: Where a mark is read (attempt, epoch, the task that Spark names), one that was made in attempt 0, epoch 5, by task 7
#: -> whether it is an error there, and not only text.
READ = {
    "where it was made": (0, 5, 7, True),
    "where Spark names no task": (0, 5, None, True),
    "another attempt": (1, 5, 7, False),
    "another epoch": (0, 6, 7, False),
    "another task": (0, 5, 8, False),
    "beside epochs": (0, None, 7, False),
    "the query as a whole": (0, None, None, False),
}


@pytest.mark.parametrize(("attempt", "epoch", "task", "counts"), READ.values(), ids=READ)
@pytest.mark.parametrize("record", [False, True], ids=["raised", "in a record"])
def test_a_mark_that_was_copied_out_of_a_log_counts_only_where_it_was_made(
    attempt: int, epoch: int | None, task: int | None, counts: bool, record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as within:
        within.setattr("pyspark.TaskContext.get", lambda: TaskOfSpark(7))
        words = "the cell '" if record else ""
        failed = through_spark(FencedError("another driver"), SECRET, 5, words)
    words = lost(task) if task is not None else "[STREAM_FAILED] Query failed: "
    error = RuntimeError(f"{words}{failed}")
    if task is not None:
        error = PySparkException(f"{words}{failed}")
    found = translate(error, WHERE, secret_of("job", attempt), epoch)
    assert (type(found) is FencedError) is counts
    if epoch is not None:
        of_sink = failure_of_frame_sink(PySparkException(str(error)), secret_of("job", attempt), epoch, "hint")
        assert (type(of_sink) is FencedError) is counts


def test_a_mark_of_another_job_is_only_text() -> None:
    failed = through_spark(FencedError("another driver"), secret_of("another", 0))
    assert type(translate(failed, WHERE, SECRET)) is OperationError
    assert type(translate(failed, WHERE)) is OperationError


@pytest.mark.parametrize(
    ("signed_in", "read_in"), [(5, None), (5, 5), (None, 5), (None, None)], ids="query epoch planning beside".split()
)
def test_the_error_of_an_epoch_or_of_its_planning_counts_if_it_was_signed_outside_of_tasks(
    signed_in: int | None, read_in: int | None
) -> None:
    failed = through_spark(FencedError("another driver"), SECRET, signed_in)
    assert type(translate(failed, WHERE, SECRET, read_in)) is FencedError


def test_the_error_that_quotes_a_copied_mark_is_the_one_that_counts() -> None:
    copied = str(through_spark(FencedError("another driver"), SECRET, 5)).partition("<flinkish")
    quoting = ProgramError(f"the record {copied[1]}{copied[2]} is wrong")
    assert type(translate(through_spark(quoting, SECRET, 5), WHERE, SECRET, 5)) is ProgramError


#: What decides how a job goes on, if Spark says it.
DECISIVE = [
    "CONCURRENT_QUERY",
    "[CONCURRENT_QUERY] Another instance of this query was just started by a concurrent session.",
    "No module named 'flinkish'",
    "Answer from Java side is empty",
    "[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid. Session was closed.",
    "[KAFKA_DATA_LOSS.START_OFFSET_RESET] offsets 3 to 7 are lost",
    "Some data may have been lost",
    "There are [1] sources in the checkpoint offsets and now there are [2] sources requested by the query",
    "[DELTA_SOURCE_TABLE_IGNORE_CHANGES] data update",
    "AnalysisException: no",
]

#: How a cell may stand in a message of Spark, and of the code that a program hands to Spark.
QUOTING = [
    '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "INT"',
    "[STREAM_FAILED] Query [id = 9, runId = 1] terminated with exception: [CAST_INVALID_INPUT] The value '{}' of",
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
    "1.0 (TID 1) (host executor driver): org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The '{}'",
    "[USER_RAISED_EXCEPTION] {}",
    "java.lang.RuntimeException: {}",
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    "Traceback (most recent call last):\n"
    '  File "job.py", line 3, in parsed\n    raise ValueError(cell)\nValueError: {}\n\tat org.apache.C.m(C.scala:1)',
]


@pytest.mark.parametrize("cell", DECISIVE)
@pytest.mark.parametrize("quoting", QUOTING)
@pytest.mark.parametrize("disguise", ["{}", "x\n{}", "x\n\tat a.B.c(B.java:1)\nCaused by: java.io.IOException: {}"])
def test_a_record_in_an_error_of_spark_does_not_choose_the_error_of_the_job(
    cell: str, quoting: str, disguise: str
) -> None:
    text = quoting.format(disguise.format(cell))
    assert type(translate(PySparkException(text), WHERE)) is OperationError
    assert type(translate(ValueError(disguise.format(cell)), WHERE)) is OperationError
