"""What Spark 4.2 says of damaged files of a query, and what becomes of it."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import UnknownException

from flinkish.errors import CorruptStateError, OperationError
from flinkish.spark.failures import tells_of_bad_table, translate

QUERY = "file:/data/job/spark"
#: Spark's words for a failure to load state, whatever the reason was.
NO_STATE = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.\nCaused by: "


def damage_in(text: str) -> CorruptStateError | None:
    error = translate(PySparkException(text), "job 'shop'")
    return error if isinstance(error, CorruptStateError) else None


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (
            "[STREAM_FAILED] Query [id = 9] terminated with exception: Failed to read log file "
            f"{QUERY}/offsets/6. Incomplete log file SQLSTATE: XXKST",
            "offsets/6",
        ),
        (
            "[STREAM_FAILED] Query [id = 9, runId = 1-a] terminated with exception: Failed to read log file "
            f"{QUERY}/commits/5. Incomplete log file in the offset "
            "commit log SQLSTATE: XXKST",
            "commits/5",
        ),
        (f"[BATCH_METADATA_NOT_FOUND] Unable to find batch {QUERY}/offsets/6. SQLSTATE: 42K03", "offsets/6"),
        (f"Checksum error: {QUERY}/offsets/6 at 512 exp: 1653590612 got: 186399702 SQLSTATE: XXKST", "offsets/6"),
        (f"org.apache.hadoop.fs.ChecksumException: Checksum error: {QUERY}/metadata at 0 exp: -1 got: 2", "metadata"),
        (
            f"[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location {QUERY} is in an inconsistent state: "
            "the metadata file is missing but offset and/or commit logs contain data.",
            "metadata",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred during loading state. "
            f"Error reading delta file {QUERY}/state/0/0/6.delta of HDFSStateStoreProvider[...]: ...",
            "state/0/0/6.delta",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state. Error "
            f"reading streaming state file of {QUERY}/state/0/0/6.changelog does not exist. If the stream job",
            "state/0/0/6.changelog",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. Caused by: "
            f"org.apache.hadoop.fs.ChecksumException: Checksum error: {QUERY}/state/0/0/6.delta at 0 exp: 1 got: 2",
            "state/0/0/6.delta",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. Caused by: "
            f"java.io.FileNotFoundException: No such file or directory: {QUERY}/state/0/0/6.zip",
            "state/0/0/6.zip",
        ),
    ],
)
def test_the_damaged_file_is_named(text: str, file: str) -> None:
    error = damage_in(text)
    assert error is not None
    assert error.file == f"/data/job/spark/{file}"
    assert error.file in str(error)


def test_damage_without_the_name_of_the_file_tells_the_cause() -> None:
    assert damage_in("Job aborted due to stage failure: Task 0 lost") is None
    error = damage_in(
        "org.apache.spark.SparkException: Exception thrown in awaitResult:\nCaused by: "
        f"org.apache.spark.SparkException: {NO_STATE}java.io.EOFException\n\tat java.base/java.io.DataInputStream"
    )
    assert error is not None and error.file == "" and "java.io.EOFException" in str(error)


@pytest.mark.parametrize(
    "cause",
    [
        "java.net.ConnectException: refused",
        "org.apache.spark.SparkException: Cannot find endpoint: spark://StateStoreCoordinator@127.0.0.1:33825",
        "org.apache.spark.SparkException: Exception thrown in awaitResult: \nCaused by: "
        "org.apache.spark.rpc.RpcEndpointNotFoundException: Cannot find endpoint: spark://StateStoreCoordinator@h:1",
        "org.apache.spark.rpc.RpcTimeoutException: Futures timed out after [120 seconds]",
        "org.apache.spark.SparkException: Could not find StateStoreCoordinator.",
        "org.apache.spark.SparkException: [INTERNAL_ERROR] no memory block",
        "java.lang.ClassNotFoundException: org.apache.spark.sql.SomeProvider",
        "java.io.FileNotFoundException: /tmp/spark-1/state (No such file or directory)",
        "java.io.IOException: Input/output error",
        "org.rocksdb.RocksDBException: While lock file: /tmp/spark-1/LOCK: No locks available",
        "java.lang.IllegalStateException: SparkEnv is gone",
    ],
)
@pytest.mark.parametrize("kind", ["UNCATEGORIZED", "FAILED_TO_GET_CHANGELOG_WRITER", "UNRELEASED_THREAD_ERROR"])
def test_state_that_cannot_be_reached_is_not_damaged_but_worth_another_try(kind: str, cause: str) -> None:
    error = translate(PySparkException(NO_STATE.replace("UNCATEGORIZED", kind) + cause), "job 'shop'")
    assert isinstance(error, OperationError)
    assert error.retryable


@pytest.mark.parametrize(
    "cause",
    [
        "java.io.EOFException",
        "java.io.IOException: Stream is corrupted",
        "java.util.zip.ZipException: invalid block type",
        "com.github.luben.zstd.ZstdIOException: Data corruption detected",
        "org.rocksdb.RocksDBException: Corruption: block checksum mismatch",
    ],
)
def test_state_whose_content_is_not_what_was_written_is_damaged(cause: str) -> None:
    assert damage_in(NO_STATE + cause) is not None


@pytest.mark.parametrize(
    "cell",
    [
        f"Checksum error: {QUERY}/offsets/6 at 512 exp: 1653590612 got: 186399702",
        f"[BATCH_METADATA_NOT_FOUND] Unable to find batch {QUERY}/offsets/6. ",
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.",
        f"x\nCaused by: org.apache.hadoop.fs.ChecksumException: Checksum error: {QUERY}/offsets/6 at 512 exp: 1 got: 2",
        "\n\tat org.apache.spark.sql.execution.streaming.checkpointing.StreamMetadata$.read(StreamMetadata.scala:60)",
    ],
)
@pytest.mark.parametrize(
    "message",
    [
        "[STREAM_FAILED] Query [id = 9, runId = 1] terminated with exception: [CAST_INVALID_INPUT] The value '{}' of",
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
        "stage 1.0 (TID 1) (host executor driver): org.apache.spark.SparkNumberFormatException: "
        "[CAST_INVALID_INPUT] The value '{}' of the type",
        "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: [{}]",
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "job.py", line 3, in parsed\n    raise ValueError(cell)\nValueError: {}',
    ],
)
def test_a_record_does_not_report_damage(cell: str, message: str) -> None:
    assert damage_in(message.format(cell)) is None


@pytest.mark.parametrize(
    ("cause", "damaged"),
    [
        ("java.net.ConnectException: refused", False),
        ("java.io.IOException: Input/output error", False),
        ("org.apache.spark.SparkException: Cannot find endpoint: spark://MapOutputTracker@127.0.0.1:33825", False),
        ("java.lang.OutOfMemoryError: Java heap space", False),
        ("org.apache.parquet.io.ParquetDecodingException: could not verify page integrity, CRC failed", True),
        ("java.io.FileNotFoundException: File file:/data/table/part-0.parquet does not exist", True),
        ("java.io.EOFException: Reached the end of stream", True),
        (f"org.apache.hadoop.fs.ChecksumException: Checksum error: {QUERY}/part-0.parquet at 0 exp: -1 got: 2", True),
    ],
)
def test_a_table_is_damaged_only_if_its_files_are(cause: str, damaged: bool) -> None:
    text = (
        "Job aborted due to stage failure: Task 0.0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
        f"stage 1.0 (TID 1) (host executor driver): {cause}"
    )
    assert tells_of_bad_table(PySparkException(text)) is damaged


def test_damage_that_only_a_trace_of_a_spark_server_tells_of_is_seen_in_its_first_frames() -> None:
    frame = "\tat org.apache.spark.sql.execution.streaming.runtime.StreamMetadata$.read(StreamMetadata.scala:60)"
    kind = "com.fasterxml.jackson.databind.exc.MismatchedInputException"
    lost = "org.apache.hadoop.fs.s3a.AWSServiceIOException"
    for named, trace, damaged in (
        (kind, f"{kind}\n\tat {kind}.from(MismatchedInputException.java:72)\n{frame}\n\tat a.B.c(B.java:1)", True),
        (kind, f"{kind}\n\tat a.B.c(B.java:1)\nCaused by: java.lang.RuntimeException: a record\n{frame}", False),
        (lost, f"{lost}\n{frame}\n\tat a.B.c(B.java:1)", False),
    ):
        error = UnknownException(f"({named}) No content to map due to end-of-input", server_stacktrace=trace)
        assert isinstance(translate(error, "job 'shop'"), CorruptStateError) is damaged
