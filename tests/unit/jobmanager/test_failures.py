"""What Spark raises becomes an error that says who must act; what a worker raised itself stays what it was."""

from __future__ import annotations

import pytest

from flinkish.errors import (
    ConnectionFailedError,
    CorruptStateError,
    EnvironmentVersionError,
    FencedError,
    FinalOperationError,
    FlinkishError,
    InvalidKeyError,
    OperationError,
    RetryableError,
    UserCodeError,
)
from flinkish.spark.failures import translate
from flinkish.spark.worker import WorkerFailure, failures_marked

WHERE = "job 'shop', directory /jobs/shop"


def through_spark(error: FlinkishError) -> RuntimeError:
    """As the JVM hands it on: the text of the worker's exception, somewhere within its own."""
    with pytest.raises(WorkerFailure) as marked, failures_marked():
        raise error
    return RuntimeError(f"[STREAM_FAILED] Query failed: {marked.value}\n\tat org.apache.spark.Some.class(Some.scala:1)")


def test_a_typed_error_of_a_worker_arrives_as_it_was() -> None:
    error = InvalidKeyError("a key is NaN", where="uid counts", expected="a key", hint="filter")
    arrived = translate(through_spark(error), WHERE)
    assert type(arrived) is InvalidKeyError
    assert (arrived.what, arrived.expected, arrived.hint) == ("a key is NaN", "a key", "filter")
    assert "uid counts" in arrived.where and WHERE in arrived.where


def test_the_traceback_of_user_code_stays_first() -> None:
    error = UserCodeError(
        "KeyError in user code: 'user'", user_traceback="Traceback (most recent call last):\nx", where="m"
    )
    arrived = translate(through_spark(error), WHERE)
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
        ("KAFKA_DATA_LOSS: offsets 3 to 7 are lost", FinalOperationError, "Kafka no longer has records"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] at batch 4", FencedError, "another query writes to this job directory"),
        ("Error reading delta file /x/3.delta", CorruptStateError, "stored state cannot be read"),
        ("Python worker exited unexpectedly (crashed)", RetryableError, "a Python worker or an executor was lost"),
        ("ModuleNotFoundError: No module named 'flinkish'", EnvironmentVersionError, "has no flinkish"),
        ("something else", OperationError, "the Spark query failed"),
    ],
)
def test_failures_of_spark_are_told_apart(text: str, kind: type[FlinkishError], said: str) -> None:
    raised = RuntimeError(text)
    translated = translate(raised, WHERE)
    assert type(translated) is kind
    assert said in str(translated) and text in str(translated) and WHERE in str(translated)
    assert translated.__cause__ is raised


def test_a_stack_of_the_jvm_does_not_fill_the_message() -> None:
    text = "the cause\n" + "\n".join(f"\tat org.apache.spark.C{n}.m(C.scala)" for n in range(100))
    assert "org.apache.spark" not in str(translate(RuntimeError(text), WHERE))
