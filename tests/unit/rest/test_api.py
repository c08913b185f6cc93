"""Requests find their routes, and errors are one sentence."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from flinkish.errors import (
    ConfigurationError,
    FencedError,
    FinalOperationError,
    InternalError,
    OperationError,
    SavepointError,
    SparkLostError,
)
from flinkish.rest.api import MAX_BODY_BYTES, MAX_PARAMETERS, Api
from flinkish.rest.route import (
    Asked,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Route,
    Status,
    Text,
)
from flinkish.rest.served_jobs import ServedJobs
from flinkish.testing import ManualClock
from tests.support.rest_jobs import JOB, KNOWN, OTHER, UNKNOWN, FakeJobs, api_of, ask, job


def echo(asked: Asked) -> dict[str, Any]:
    return {"path": dict(asked.path), "query": dict(asked.query), "body": dict(asked.body)}


ECHO = (
    Route("GET", "/", echo),
    Route("GET", "/jobs", echo),
    Route("GET", "/jobs/overview", echo),
    Route("GET", "/jobs/{job}", echo),
    Route("PATCH", "/jobs/{job}", echo),
    Route("POST", "/jobs/{job}/stop", echo),
    Route("GET", "/taskmanagers/{taskmanager}", echo),
)


@pytest.fixture
def api() -> Api:
    return api_of(FakeJobs(), ECHO)


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/jobs", {}),
        ("/v1/jobs", {}),
        ("/jobs/", {}),
        ("/v1/jobs/", {}),
        ("/v1", {}),
        ("/v1/", {}),
        ("/", {}),
        ("/jobs/overview", {}),
        (f"/jobs/{JOB}", {"job": JOB}),
        (f"/v1/jobs/{JOB}/", {"job": JOB}),
        ("/taskmanagers/host%3A4711-a%20b", {"taskmanager": "host:4711-a b"}),
        ("/%6Aobs", {}),
    ],
)
def test_a_path_is_known_with_and_without_the_version_and_a_slash_at_its_end(
    api: Api, path: str, parameters: dict[str, str]
) -> None:
    answer = ask(api, "GET", path)
    assert answer.status == 200
    assert answer.content_type == "application/json; charset=UTF-8"
    assert json.loads(answer.body)["path"] == parameters


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v2/jobs", 404),
        ("GET", "/v1/v1/jobs", 404),
        ("GET", "//jobs", 404),
        ("GET", "/jobs//", 404),
        ("GET", "", 404),
        ("GET", "jobs", 404),
        ("GET", "*", 404),
        ("GET", "/jobs/overview/more", 404),
        ("GET", "/taskmanagers/..%2F..%2Fetc", 404),
        ("GET", "/taskmanagers/..", 404),
        ("GET", "/taskmanagers/a%00b", 404),
        ("GET", "/taskmanagers/%FF", 404),
        ("GET", "/taskmanagers/" + "x" * 3_000, 404),
        ("GET", "/jobs/" + "A" * 32, 400),
        ("GET", "/jobs/short", 400),
        ("POST", "/jobs", 405),
        ("DELETE", f"/jobs/{JOB}", 405),
        ("GET", f"/jobs/{JOB}/stop", 405),
        ("get", "/jobs", 405),
        ("HEAD", f"/jobs/{JOB}/stop", 405),
    ],
)
def test_a_path_that_is_unknown_is_told_from_a_malformed_id_and_a_wrong_method(
    api: Api, method: str, path: str, code: int
) -> None:
    answer = ask(api, method, path)
    assert answer.status == code
    told = json.loads(answer.body)
    assert list(told) == ["errors"]
    assert len(told["errors"]) == 1


def test_a_wrong_method_is_told_which_ones_there_are(api: Api) -> None:
    assert ("allow", "GET, PATCH") in ask(api, "PUT", f"/jobs/{JOB}").headers


def test_a_head_is_asked_for_as_the_whole(api: Api) -> None:
    assert ask(api, "HEAD", "/jobs").status == 200


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b"", {}),
        (b"  \n", {}),
        (b"{}", {}),
        (b'{"drain":true}', {"drain": True}),
        (b"[]", None),
        (b"1", None),
        (b'"{}"', None),
        (b"{", None),
        (b"\xff\xfe", None),
        (b'{"a":' * 100_000, None),
        (b"[" * 200_000, None),
        (b"--boundary\r\nContent-Disposition: form-data", None),
    ],
)
def test_a_body_is_a_json_object_or_nothing(api: Api, body: bytes, seen: dict[str, Any] | None) -> None:
    answer = ask(api, "POST", f"/jobs/{JOB}/stop", body)
    assert answer.status == (400 if seen is None else 200)
    if seen is not None:
        assert json.loads(answer.body)["body"] == seen


def test_the_body_of_a_get_is_read_and_means_nothing(api: Api) -> None:
    assert json.loads(ask(api, "GET", "/jobs", b"{}").body)["body"] == {}
    assert ask(api, "GET", "/jobs", b"no json").status == 200


def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    assert ask(api, "POST", f"/jobs/{JOB}/stop", b" " * MAX_BODY_BYTES).status == 200
    assert ask(api, "POST", f"/jobs/{JOB}/stop", b" " * (MAX_BODY_BYTES + 1)).status == 413
    assert ask(api, "GET", "/jobs", b" " * (MAX_BODY_BYTES + 1)).status == 413


def test_parameters_are_decoded_and_bounded(api: Api) -> None:
    asked = json.loads(ask(api, "GET", "/jobs", query="get=a%2Cb&get=c&empty=").body)["query"]
    assert asked == {"get": "c", "empty": ""}
    assert ask(api, "GET", "/jobs", query="&".join(["a=b"] * (MAX_PARAMETERS + 1))).status == 400


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFoundError("there is no such vertex"), 404),
        (BadRequestError("that is no number"), 400),
        (ConflictError("it has ended"), 409),
        (ForbiddenError("not here"), 403),
        (FinalOperationError("no job"), 404),
        (FencedError("another driver"), 409),
        (SavepointError("no room"), 409),
        (OperationError("it does not run"), 409),
        (SparkLostError("gone"), 409),
        (ConfigurationError("no such key"), 400),
        (InternalError("an invariant"), 500),
        (KeyError("secret"), 500),
        (RecursionError(), 500),
    ],
)
def test_an_error_has_the_code_of_who_must_act(error: Exception, code: int, caplog: pytest.LogCaptureFixture) -> None:
    def fail(asked: Asked) -> None:
        raise error

    with caplog.at_level(logging.ERROR):
        answer = ask(api_of(FakeJobs(), [Route("GET", "/jobs", fail)]), "GET", "/jobs")
    assert answer.status == code
    (sentence,) = json.loads(answer.body)["errors"]
    if code == 500:
        assert "see the driver's log" in sentence
        assert "secret" not in sentence and "invariant" not in sentence
        assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
    else:
        assert sentence == str(error)
        assert not caplog.records
    assert b"Traceback" not in answer.body


@pytest.mark.parametrize(
    ("value", "code", "body", "kind"),
    [
        ({"a": 1}, 200, b'{"a":1}', "application/json; charset=UTF-8"),
        (Status(202, {"request-id": "x"}), 202, b'{"request-id":"x"}', "application/json; charset=UTF-8"),
        (Text("a line\n\ud800"), 200, b"a line\n?", "text/plain; charset=UTF-8"),
        (
            [float("nan"), {"a": float("inf")}, (-float("inf"),), 1.5],
            200,
            b'["NaN",{"a":"Infinity"},["-Infinity"],1.5]',
            "application/json; charset=UTF-8",
        ),
        ("\ud800ü", 200, rb'"\ud800\u00fc"', "application/json; charset=UTF-8"),
    ],
)
def test_what_a_route_returns_becomes_the_answer(value: Any, code: int, body: bytes, kind: str) -> None:
    answer = ask(api_of(FakeJobs(), [Route("GET", "/jobs", lambda asked: value)]), "GET", "/jobs")
    assert (answer.status, answer.body, answer.content_type) == (code, body, kind)


def test_no_answer_allows_the_pages_of_others(api: Api) -> None:
    for path in ("/jobs", "/nothing"):
        names = {name for name, _ in ask(api, "GET", path).headers}
        assert "access-control-allow-origin" not in names
        assert {"x-content-type-options", "x-frame-options", "referrer-policy"} <= names


def test_what_the_asker_has_already_is_not_sent_again(api: Api) -> None:
    tag = dict(ask(api, "GET", "/jobs").headers)["etag"]
    again = ask(api, "GET", "/jobs", headers={**KNOWN, "if-none-match": f'"other", W/{tag}'})
    assert (again.status, again.body) == (304, b"")
    assert dict(again.headers)["etag"] == tag
    assert ask(api, "GET", "/jobs", query="a=b", headers={**KNOWN, "if-none-match": tag}).status == 200


# ------------------------------------------------------------------ what all requests share


def test_jobs_are_described_once_a_second_whoever_asks() -> None:
    jobs, clock = FakeJobs(), ManualClock()
    served = ServedJobs(jobs, lambda: clock.now_ms() / 1000)
    threads = [threading.Thread(target=served.describe) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served.describe_job(JOB)
    assert jobs.described == 1
    clock.advance(1_000)
    served.describe_job(JOB)
    served.describe()
    assert jobs.described == 2


def test_a_job_that_has_just_begun_is_found_at_once() -> None:
    jobs = FakeJobs()
    served = ServedJobs(jobs, lambda: 0.0)
    assert [one.id for one in served.describe().jobs] == [JOB]
    jobs.jobs[OTHER] = job(OTHER)
    assert served.describe_job(OTHER).id == OTHER
    assert [one.id for one in served.describe().jobs] == [JOB, OTHER]


def test_an_unknown_job_is_not_found_and_described_no_more_often() -> None:
    jobs = FakeJobs()
    served = ServedJobs(jobs, lambda: 0.0)
    for _ in range(5):
        with pytest.raises(NotFoundError, match="knows no job"):
            served.describe_job(UNKNOWN)
    assert jobs.described == 1


def test_what_was_changed_is_seen_at_once() -> None:
    jobs = FakeJobs()
    api = api_of(jobs, [Route("GET", "/jobs", lambda asked: asked.jobs.describe().jobs[0].status), *ECHO[4:5]])
    assert ask(api, "GET", "/jobs").body == b'"RUNNING"'
    jobs.jobs[JOB] = job(status="CANCELLING")
    ask(api, "PATCH", f"/jobs/{JOB}")
    assert ask(api, "GET", "/jobs").body == b'"CANCELLING"'
