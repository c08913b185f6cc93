"""What is asked of a job by REST, and how its outcome is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flinkish.errors import OperationError, SavepointError
from flinkish.jobmanager.job.operations import Kind, Request
from flinkish.rest.operations import OPERATIONS
from flinkish.rest.route import Features
from flinkish.rest.served_jobs import FetchedOperations
from tests.support.rest_jobs import JOB, OTHER, UNKNOWN, FakeJobs, api_of, ask, job

TRIGGER = "0123456789abcdef" * 2
ELSE = "f" * 32


def sent(jobs: FakeJobs, method: str, path: str, body: Any = None, query: str = "") -> tuple[int, Any]:
    """Code and JSON of the answer."""
    text = b"" if body is None else json.dumps(body).encode()
    answer = ask(api_of(jobs, OPERATIONS), method, path, text, query)
    return answer.status, json.loads(answer.body)


ASKED = [
    ("savepoints", {}, Request(Kind.SAVEPOINT, JOB)),
    ("savepoints", None, Request(Kind.SAVEPOINT, JOB)),
    (
        "savepoints",
        {"target-directory": "/data/sp", "cancel-job": False, "formatType": "CANONICAL", "triggerId": None},
        Request(Kind.SAVEPOINT, JOB, "/data/sp"),
    ),
    ("savepoints", {"cancel-job": True, "formatType": "native"}, Request(Kind.SAVEPOINT, JOB, cancel_job=True)),
    ("stop", {}, Request(Kind.STOP, JOB)),
    ("stop", {"targetDirectory": "/data/sp", "drain": True}, Request(Kind.STOP, JOB, "/data/sp", drain=True)),
    ("checkpoints", {"checkpointType": "CONFIGURED", "triggerId": None}, Request(Kind.CHECKPOINT, JOB)),
    ("checkpoints", {"checkpointType": "FULL"}, Request(Kind.CHECKPOINT, JOB, full=True)),
]


@pytest.mark.parametrize(("what", "body", "request_"), ASKED)
def test_a_request_is_accepted_with_an_id(what: str, body: Any, request_: Request) -> None:
    jobs = FakeJobs()
    code, told = sent(jobs, "POST", f"/v1/jobs/{JOB}/{what}", body)
    assert code == 202
    assert len(told["request-id"]) == 32
    assert jobs.asked == [request_]


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("savepoints", {"target-directory": 1}),
        ("savepoints", {"target-directory": "x" * 5_000}),
        ("savepoints", {"cancel-job": "true"}),
        ("savepoints", {"formatType": "AVRO"}),
        ("savepoints", {"triggerId": "short"}),
        ("stop", {"drain": 1}),
        ("stop", {"triggerId": TRIGGER.upper()}),
        ("checkpoints", {"checkpointType": "HALF"}),
        ("checkpoints", {"triggerId": ["x"]}),
    ],
)
def test_a_field_that_is_no_such_thing_is_named_and_nothing_begins(what: str, body: dict[str, Any]) -> None:
    jobs = FakeJobs()
    code, told = sent(jobs, "POST", f"/jobs/{JOB}/{what}", body)
    assert code == 400
    assert next(iter(body)) in told["errors"][0]
    assert not jobs.asked


def test_the_id_that_the_client_chooses_stands_for_one_operation() -> None:
    jobs = FakeJobs()
    body = {"triggerId": TRIGGER, "target-directory": "/data/sp"}
    for _ in range(3):
        assert sent(jobs, "POST", f"/jobs/{JOB}/savepoints", body) == (202, {"request-id": TRIGGER})
    assert len(jobs.asked) == 1
    code, told = sent(jobs, "POST", f"/jobs/{JOB}/stop", {"triggerId": TRIGGER})
    assert code == 409
    assert TRIGGER in told["errors"][0]
    assert len(jobs.asked) == 1


def test_a_retry_after_the_end_of_the_job_finds_what_it_began() -> None:
    jobs = FakeJobs()
    sent(jobs, "POST", f"/jobs/{JOB}/stop", {"triggerId": TRIGGER})
    jobs.jobs[JOB] = job(status="FINISHED")
    assert sent(jobs, "POST", f"/jobs/{JOB}/stop", {"triggerId": TRIGGER}) == (202, {"request-id": TRIGGER})


@pytest.mark.parametrize("status", ["FINISHED", "CANCELED", "FAILED", "SUSPENDED"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "savepoints"), ("POST", "stop"), ("POST", "checkpoints"), ("PATCH", "")]
)
def test_nothing_begins_in_a_job_that_has_ended(status: str, method: str, path: str) -> None:
    jobs = FakeJobs(job(status=status))
    code, told = sent(jobs, method, f"/jobs/{JOB}/{path}", {})
    assert code == 409
    assert status in told["errors"][0]
    assert not jobs.asked


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "savepoints"), ("POST", "stop"), ("POST", "checkpoints"), ("PATCH", ""), ("GET", "yarn-cancel")],
)
def test_an_unknown_job_is_said_to_be_unknown_at_once(method: str, path: str) -> None:
    jobs = FakeJobs()
    code, told = sent(jobs, method, f"/jobs/{UNKNOWN}/{path}")
    assert (code, list(told)) == (404, ["errors"])
    assert not jobs.asked


OUTCOMES = [
    ("savepoints", "savepoints", {}, "/data/sp/savepoint-1", {"location": "/data/sp/savepoint-1"}),
    ("stop", "savepoints", {}, "/data/sp/savepoint-1", {"location": "/data/sp/savepoint-1"}),
    ("checkpoints", "checkpoints", {}, 7, {"checkpointId": 7}),
]


@pytest.mark.parametrize(("asked", "polled", "body", "result", "operation"), OUTCOMES)
def test_an_outcome_is_polled_for_by_its_id(
    asked: str, polled: str, body: dict[str, Any], result: Any, operation: dict[str, Any]
) -> None:
    jobs = FakeJobs()
    trigger = sent(jobs, "POST", f"/jobs/{JOB}/{asked}", body)[1]["request-id"]
    poll = f"/jobs/{JOB}/{polled}/{trigger}"
    assert sent(jobs, "GET", poll) == (200, {"status": {"id": "IN_PROGRESS"}, "operation": None})
    jobs.outcomes[0].complete(result)
    assert sent(jobs, "GET", poll) == (200, {"status": {"id": "COMPLETED"}, "operation": operation})
    assert sent(jobs, "GET", poll)[0] == 200, "it is kept for a while"


@pytest.mark.parametrize(
    ("asked", "polled", "field"),
    [
        ("savepoints", "savepoints", "failure-cause"),
        ("stop", "savepoints", "failure-cause"),
        ("checkpoints", "checkpoints", "failureCause"),
    ],
)
def test_a_failure_is_an_outcome_with_its_cause(asked: str, polled: str, field: str) -> None:
    jobs = FakeJobs()
    trigger = sent(jobs, "POST", f"/jobs/{JOB}/{asked}")[1]["request-id"]
    jobs.outcomes[0].complete_exceptionally(SavepointError("the disk is full"))
    code, told = sent(jobs, "GET", f"/jobs/{JOB}/{polled}/{trigger}")
    assert (code, told["status"]["id"]) == (200, "COMPLETED")
    assert list(told["operation"]) == [field]
    cause = told["operation"][field]
    assert cause["class"] == "flinkish.errors.SavepointError"
    assert cause["serialized-throwable"].startswith("rO0ABX")


def test_a_disposal_is_accepted_with_200_and_ends_with_an_empty_operation() -> None:
    jobs = FakeJobs()
    code, told = sent(jobs, "POST", "/v1/savepoint-disposal", {"savepoint-path": "/data/sp/savepoint-1"})
    assert code == 200
    assert jobs.asked == [Request(Kind.DISPOSE, directory="/data/sp/savepoint-1")]
    poll = f"/v1/savepoint-disposal/{told['request-id']}"
    jobs.outcomes[0].complete(None)
    assert sent(jobs, "GET", poll) == (200, {"status": {"id": "COMPLETED"}, "operation": {}})
    assert sent(jobs, "POST", "/savepoint-disposal", {})[0] == 400


def test_a_disposal_that_fails_says_why() -> None:
    jobs = FakeJobs()
    trigger = sent(jobs, "POST", "/savepoint-disposal", {"savepoint-path": "/x"})[1]["request-id"]
    jobs.outcomes[0].complete_exceptionally(SavepointError("there is none"))
    assert "failure-cause" in sent(jobs, "GET", f"/savepoint-disposal/{trigger}")[1]["operation"]


@pytest.mark.parametrize(
    "poll",
    [
        f"/jobs/{JOB}/savepoints/{ELSE}",
        f"/jobs/{OTHER}/savepoints/{TRIGGER}",
        f"/jobs/{JOB}/checkpoints/{TRIGGER}",
        f"/savepoint-disposal/{TRIGGER}",
    ],
)
def test_an_operation_is_found_by_its_own_job_and_kind_alone(poll: str) -> None:
    jobs = FakeJobs(job(), job(OTHER))
    sent(jobs, "POST", f"/jobs/{JOB}/savepoints", {"triggerId": TRIGGER})
    assert sent(jobs, "GET", f"/jobs/{JOB}/savepoints/{TRIGGER}")[0] == 200
    assert sent(jobs, "GET", poll)[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("PATCH", f"/v1/jobs/{JOB}", "mode=cancel"),
        ("PATCH", f"/jobs/{JOB}", ""),
        ("GET", f"/jobs/{JOB}/yarn-cancel", ""),
        ("POST", f"/applications/{JOB}/cancel", ""),
    ],
)
def test_a_cancellation_is_accepted_and_not_polled_for(method: str, path: str, query: str) -> None:
    jobs = FakeJobs()
    assert sent(jobs, method, path, query=query) == (202, {})
    assert jobs.asked == [Request(Kind.CANCEL, JOB)]


def test_a_cancellation_that_cannot_be_begun_is_a_conflict() -> None:
    class Refusing(FakeJobs):
        def _begin(self, request: Request) -> Any:
            raise OperationError("it is over")

    assert sent(Refusing(), "PATCH", f"/jobs/{JOB}") == (409, {"errors": ["it is over"]})


@pytest.mark.parametrize(("mode", "says"), [("stop", "/stop"), ("suspend", "mode")])
def test_a_job_is_only_cancelled_by_this_request(mode: str, says: str) -> None:
    jobs = FakeJobs()
    code, told = sent(jobs, "PATCH", f"/jobs/{JOB}", query=f"mode={mode}")
    assert code == 400
    assert says in told["errors"][0]
    assert not jobs.asked


def test_the_web_ui_cancels_nothing_if_the_configuration_says_so() -> None:
    jobs = FakeJobs()
    api = api_of(jobs, OPERATIONS, features=Features(web_cancel=False))
    assert ask(api, "GET", f"/jobs/{JOB}/yarn-cancel").status == 403
    assert ask(api, "POST", f"/applications/{JOB}/cancel").status == 403
    assert not jobs.asked
    assert ask(api, "PATCH", f"/jobs/{JOB}").status == 202


@pytest.mark.parametrize(
    ("method", "path", "instead"),
    [
        ("POST", "/v1/jobs", "flinkish run"),
        ("POST", "/jars/upload", "flinkish run"),
        ("POST", "/jars/a.jar/run", "flinkish run"),
        ("POST", "/jars/a.jar/plan", "flinkish run"),
        ("DELETE", "/jars/a.jar", "flinkish run"),
        ("DELETE", "/cluster", "cancel or stop"),
        ("PATCH", f"/jobs/{JOB}/rescaling", "flinkish run -s"),
        ("PUT", f"/jobs/{JOB}/resource-requirements", "flinkish run -s"),
    ],
)
def test_what_cannot_be_asked_of_a_driver_is_refused_with_what_to_do_instead(
    method: str, path: str, instead: str
) -> None:
    body = b"{}" if "jobs/" in path else b"--boundary\r\n\x00\xac\xed"
    answer = ask(api_of(FakeJobs(), OPERATIONS), method, path, body)
    assert answer.status == 403
    assert instead in json.loads(answer.body)["errors"][0]


# ------------------------------------------------------------------ who still waits for an answer


def test_a_result_counts_as_fetched_when_somebody_has_seen_the_end() -> None:
    jobs, now_s = FakeJobs(), [0.0]
    operations = FetchedOperations(jobs.operations, lambda: now_s[0])
    first = operations.trigger(Request(Kind.STOP, JOB)).id
    operations.trigger(Request(Kind.CANCEL, JOB))
    assert operations.unfetched(10) == (first,), "the end of a cancellation is not asked for"
    operations.get(first)
    assert operations.unfetched(10) == (first,)
    jobs.outcomes[0].complete("/sp")
    assert operations.unfetched(10) == (first,)
    operations.get(first)
    assert operations.unfetched(10) == ()


def test_nobody_waits_for_who_has_not_asked_for_long() -> None:
    jobs, now_s = FakeJobs(), [0.0]
    operations = FetchedOperations(jobs.operations, lambda: now_s[0])
    first = operations.trigger(Request(Kind.SAVEPOINT, JOB)).id
    now_s[0] = 8
    operations.get(first)
    now_s[0] = 15
    assert operations.unfetched(10) == (first,)
    now_s[0] = 19
    assert operations.unfetched(10) == ()
