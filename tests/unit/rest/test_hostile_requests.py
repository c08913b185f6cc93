"""Whoever may not ask is told nothing, on no route; and no request makes the driver fail."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping

import pytest

from flinkish.errors import OperationError
from flinkish.jobmanager.job.operations import Kind, Request
from flinkish.rest.access import Access
from flinkish.rest.api import MAX_BODY_BYTES, Api
from flinkish.rest.route import Route
from flinkish.rest.routes import ROUTES
from flinkish.rest.served_jobs import ServedJobs
from tests.support.rest_jobs import HOST, JOB, KNOWN, TOKEN, FakeJobs, api_of, ask

NO_TOKEN = {"host": HOST}
WRONG_TOKEN = {"host": HOST, "authorization": "Bearer wrong"}
FOREIGN_HOST = {**KNOWN, "host": "evil.example"}
FOREIGN_ORIGIN = {**KNOWN, "origin": "http://evil.example"}
FOREIGN_PAGE = {
    "host": HOST,
    "cookie": "=".join(Access(TOKEN).cookie),
    "sec-fetch-site": "cross-site",
}

TRAVERSALS = (
    "..",
    "%2e%2e",
    "..%2F..%2Fetc%2Fpasswd",
    "..%5C..%5Cetc",
    "%2Fetc%2Fpasswd",
    "a%00b",
    "%0d%0aSet-Cookie:%20a=b",
    "..;",
    "%ff%fe",
    "file:%2F%2F%2Fetc%2Fpasswd",
)
ODD_METHODS = ("PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "GET ", "")
NAMES = {
    "job": JOB,
    "application": JOB,
    "vertex": "c" * 32,
    "trigger": "d" * 32,
    "checkpoint": "1",
    "subtask": "0",
    "attempt": "0",
}


def path_of(route: Route, **given: str) -> str:
    """A path of a route; its parameters are known ids unless they are given."""
    values = {**NAMES, **given}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "x"), route.path)


def parameters_of(route: Route) -> list[str]:
    return re.findall(r"\{(\w+)\}", route.path)


IDS = [f"{route.method} {route.path}" for route in ROUTES]


def sent(jobs: FakeJobs, method: str, path: str, body: bytes = b"{}", headers: Mapping[str, str] = KNOWN) -> int:
    """The status code; the answer is checked to be an error and nothing more."""
    answer = ask(api_of(jobs, ROUTES), method, path, body, headers=headers)
    told = json.loads(answer.body)
    assert list(told) == ["errors"]
    assert len(told["errors"]) == 1
    assert TOKEN not in answer.body.decode()
    assert b"root:" not in answer.body
    assert not any("\r" in value or "\n" in value for _, value in answer.headers)
    return answer.status


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
@pytest.mark.parametrize(
    ("headers", "code"),
    [(NO_TOKEN, 401), (WRONG_TOKEN, 401), (FOREIGN_HOST, 403), (FOREIGN_ORIGIN, 403), (FOREIGN_PAGE, 403), ({}, 403)],
    ids=["no token", "wrong token", "foreign host", "foreign origin", "foreign page", "nothing"],
)
def test_who_may_not_ask_learns_nothing_and_changes_nothing(
    route: Route, headers: Mapping[str, str], code: int
) -> None:
    jobs = FakeJobs()
    for prefix in ("", "/v1"):
        assert sent(jobs, route.method, prefix + path_of(route), headers=headers) == code
    assert not jobs.asked
    assert not jobs.described


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_no_parameter_of_a_path_leads_elsewhere(route: Route) -> None:
    jobs = FakeJobs()
    for name in parameters_of(route):
        for text in TRAVERSALS:
            code = sent(jobs, route.method, path_of(route, **{name: text}))
            # one that is only odd is no path, or no id, or refused like any other
            assert code in (404, 405) or (code in (400, 403) and text == "..;"), (name, text, code)
    assert not jobs.asked


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_a_large_body_is_not_taken(route: Route) -> None:
    jobs = FakeJobs()
    assert sent(jobs, route.method, path_of(route), b" " * (2 * MAX_BODY_BYTES)) == 413
    assert not jobs.asked


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_an_odd_method_is_not_known(route: Route) -> None:
    jobs = FakeJobs()
    known = {one.method for one in ROUTES if one.match(path_of(route)) is not None}
    for method in ODD_METHODS:
        if method not in known:
            assert sent(jobs, method, path_of(route)) in (404, 405), method
    assert not jobs.asked


# ------------------------------------------------------------------ any request at all


def any_paths(source: random.Random) -> Iterator[str]:
    words = [part for route in ROUTES for part in path_of(route).split("/")]
    pieces = [*words, *TRAVERSALS, *("v1", "", "%", "%zz", "ü", "\x00", "?", "*", "x" * 300, "-1", "9" * 40, "a" * 32)]
    while True:
        if source.random() < 0.5:
            route = source.choice(ROUTES)
            odd = {name: source.choice(pieces) for name in parameters_of(route) if source.random() < 0.3}
            yield source.choice(("", "/v1")) + path_of(route, **odd) + source.choice(("", "", "/"))
        else:
            yield "/".join(["", *source.choices(pieces, k=source.randrange(6))])


def any_body(source: random.Random) -> bytes:
    values = [None, True, 1, -1.5, "", "text", "/data/sp", [], {}, "d" * 32, 1e308, "\ud800"]
    names = ["triggerId", "target-directory", "targetDirectory", "drain", "cancel-job", "savepoint-path", "formatType"]
    kind = source.randrange(4)
    if kind == 0:
        return source.randbytes(source.randrange(100))
    if kind == 1:
        return json.dumps(source.choice(values)).encode()
    return json.dumps({name: source.choice(values) for name in source.sample(names, source.randrange(5))}).encode()


def any_query(source: random.Random) -> str:
    parts = [
        "mode=cancel",
        "mode=stop",
        "mode",
        "get=a,b",
        "get",
        "agg=min,skew",
        "maxExceptions=-1",
        "type=",
        "=",
        "&",
        "%",
    ]
    parts += ["subtasks=0-9999999999", "jobs=x", "upToExceptions=1e9", "\ud800", "token=x"]
    return "&".join(source.choices(parts, k=source.randrange(4)))


def test_ten_thousand_random_requests_are_answered_without_a_fault_of_ours() -> None:
    source = random.Random(52)

    class Deciding(FakeJobs):
        """Some operations succeed, some fail, some go on."""

        def _begin(self, request: Request) -> object:  # type: ignore[override]
            outcome = super()._begin(request)
            if source.random() < 0.3:
                outcome.complete(7 if request.kind is Kind.CHECKPOINT else "/data/sp/savepoint-1")
            elif source.random() < 0.3:
                outcome.complete_exceptionally(OperationError("no"))
            return outcome

    jobs = Deciding()
    api = Api(ServedJobs(jobs), ROUTES, Access(TOKEN))
    codes: dict[int, int] = {}
    paths = any_paths(source)
    for _ in range(10_000):
        method = source.choice(["GET"] * 5 + ["POST"] * 3 + ["PATCH", "PUT", "DELETE", "HEAD", "X"])
        headers = dict(source.choice([KNOWN] * 8 + [NO_TOKEN, FOREIGN_ORIGIN]))
        answer = api.answer(method, next(paths), any_query(source), headers, any_body(source))
        codes[answer.status] = codes.get(answer.status, 0) + 1
    assert all(code < 500 for code in codes), codes
    assert {200, 202, 400, 401, 403, 404, 405} <= set(codes), codes
