"""The session process answers for all jobs: it forwards, merges, reads archives; and whoever may not ask is told
nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flinkish.jobmanager.job.description import DriverDescription
from flinkish.rest.access import Access
from flinkish.rest.api import Answer, Api
from flinkish.rest.route import Features
from flinkish.rest.served_jobs import ServedJobs
from flinkish.runtime.phases import ManualClock
from flinkish.session import metrics as session_metrics
from flinkish.session.archives import Archives
from flinkish.session.children import Child
from flinkish.session.drivers import DriverError
from flinkish.session.job_folder import JobFolder
from flinkish.session.metrics import merged, scrape
from flinkish.session.registry import Registry
from flinkish.session.routes import NoJobs, SessionApi
from flinkish.session.submission import Submission
from flinkish.session.uploads import Uploads
from tests.support.rest_jobs import HOST, KNOWN, TOKEN
from tests.unit.session.folders import (
    JOB,
    OTHER,
    THIRD,
    URL,
    FakeDriver,
    FakeRestarts,
    archive,
    job_directory,
    line,
)

UNKNOWN = "e" * 32


class FakeChildren(FakeRestarts):
    """Starts drivers that have a job at once, or end at once with ``code``."""

    def __init__(self, folder: Path, code: int | None = None, **statuses: str) -> None:
        super().__init__(**statuses)
        self.folder = folder
        self.code = code
        self.submitted: list[Child] = []

    def submit(self, child: Child) -> Child:
        self.submitted.append(child)
        directory = self.folder / child.name
        if self.code is None:
            job_directory(directory, UNKNOWN, None)
        else:
            (directory / "driver.log").write_text("Traceback\nValueError: password=secret\n")
        return child

    def get(self, name: str) -> Child | None:
        status = "RUNNING" if self.code is None else "ENDED"
        return Child(name, "", [], {}, "", 0, status=status, code=self.code)


class Session:
    """An API of a session: a driver with a job, an archive, and a job that waits for its restart."""

    def __init__(self, folder: Path, code: int | None = None, **options: Any) -> None:
        self.driver = FakeDriver()
        self.driver.jobs = (line(JOB),)
        self.driver.task_managers = ({"id": "host:driver", "slotsNumber": 2, "freeSlots": 1},)
        self.children = FakeChildren(folder, code, waits="RESTARTING")
        job_directory(folder / "one", JOB, URL)
        archive(folder / "archive", OTHER, "FAILED")
        job_directory(folder / "waits", THIRD, None, pid=1 << 22)
        archives = Archives([str(folder / "archive")])
        registry = Registry(
            JobFolder(str(folder)),
            archives,
            lambda url, host: self.driver,  # type: ignore[arg-type,return-value]
            self.children,
            ManualClock(20_000),
        )
        self.uploads = Uploads(folder / ".uploads", 1 << 20)
        submission = Submission(self.uploads, self.children, registry)  # type: ignore[arg-type]
        self.beyond = SessionApi(
            registry,
            archives,
            self.children,  # type: ignore[arg-type]
            submission if options.pop("submits", True) else None,
            **options,
        )
        own = ServedJobs(NoJobs(DriverDescription("host", 1)))
        self.api = Api(own, self.beyond.routes(), Access(TOKEN), Features(True), beyond=self.beyond)

    def ask(
        self, method: str, path: str, body: Any = None, query: str = "", headers: Mapping[str, str] = KNOWN
    ) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        answer = self.api.answer(method, path, query, headers, data)
        return answer.status, json.loads(answer.body or b"null")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_lists_have_the_jobs_of_all_sources(session: Session) -> None:
    states = {JOB: "RUNNING", OTHER: "FAILED", THIRD: "RESTARTING"}
    assert {one["id"]: one["status"] for one in session.ask("GET", "/jobs")[1]["jobs"]} == states
    assert {one["jid"]: one["state"] for one in session.ask("GET", "/v1/jobs/overview")[1]["jobs"]} == states
    applications = session.ask("GET", "/applications/overview")[1]["applications"]
    assert {one["id"]: one["status"] for one in applications} == {**states, THIRD: "RUNNING"}
    overview = session.ask("GET", "/overview")[1]
    counts = {name: overview[f"jobs-{name}"] for name in ("running", "finished", "cancelled", "failed")}
    assert counts == {"running": 2, "finished": 0, "cancelled": 0, "failed": 1}
    assert (overview["taskmanagers"], overview["slots-total"], overview["slots-available"]) == (1, 2, 1)
    assert session.ask("GET", "/taskmanagers")[1]["taskmanagers"] == list(session.driver.task_managers)
    assert session.ask("GET", "/config")[1]["features"]["web-submit"] is True
    assert session.ask("GET", "/jobmanager/environment")[0] == 200


def test_the_metrics_of_all_drivers_are_one_scrape(session: Session) -> None:
    told = '# HELP flink_a a\n# TYPE flink_a gauge\nflink_a{n="1"} 1.0\nflink_jobmanager_numRunningJobs{host="x"} 9.0\n'
    session.driver.answer = Answer(200, told.encode())
    answer = session.api.answer("GET", "/metrics", "", KNOWN, b"")
    lines = answer.body.decode().splitlines()
    assert lines[0] == 'flink_jobmanager_numRunningJobs{host="host"} 1.0'
    assert lines[4:] == ["# HELP flink_a a", "# TYPE flink_a gauge", 'flink_a{n="1"} 1.0']
    session.driver.answer = DriverError("It hangs.")
    assert session.api.answer("GET", "/metrics", "", KNOWN, b"").body.count(b"\n") == 4


#: Texts of drivers -> the lines of all of them.
METRICS: list[tuple[str, list[str], list[str]]] = [
    ("names stand together", ["a 1\nb 1", 'a{x="1"} 2'], ["a 1", 'a{x="1"} 2', "b 1"]),
    ("a set of labels stands once", ['a{x="1"} 1', 'a{x="1"} 2'], ['a{x="1"} 1']),
    ("a label may hold a blank", ['a{x="1 2"} 1'], ['a{x="1 2"} 1']),
    (
        "help and type stand once",
        ["# TYPE a gauge\na 1", '# TYPE a gauge\na{x="1"} 1'],
        ["# TYPE a gauge", "a 1", 'a{x="1"} 1'],
    ),
    ("a job's metrics stay", ["flink_jobmanager_job_up 1\nflink_jobmanager_up 1"], ["flink_jobmanager_job_up 1"]),
    ("what is no metric is left out", ["", "\n\n", "x", "# ", "#"], []),
]


@pytest.mark.parametrize(("texts", "lines"), [case[1:] for case in METRICS], ids=[case[0] for case in METRICS])
def test_metrics_of_several_drivers_are_one_text(texts: list[str], lines: list[str]) -> None:
    assert merged(texts).splitlines() == lines


#: Method, path and query of a request -> what the driver is asked.
FORWARDED: list[tuple[str, str, str, tuple[str, str, str]]] = [
    ("GET", f"/jobs/{JOB}", "", ("GET", f"/jobs/{JOB}", "")),
    ("HEAD", f"/jobs/{JOB}", "", ("GET", f"/jobs/{JOB}", "")),
    ("GET", f"/v1/jobs/{JOB}/", "", ("GET", f"/jobs/{JOB}", "")),
    ("GET", f"/jobs/{JOB}/exceptions", "maxExceptions=1", ("GET", f"/jobs/{JOB}/exceptions", "maxExceptions=1")),
    ("PATCH", f"/jobs/{JOB}", "mode=cancel", ("PATCH", f"/jobs/{JOB}", "mode=cancel")),
    ("POST", f"/jobs/{JOB}/savepoints", "", ("POST", f"/jobs/{JOB}/savepoints", "")),
    ("GET", f"/applications/{JOB}", "", ("GET", f"/applications/{JOB}", "")),
    ("GET", "/taskmanagers/host:driver/metrics", "get=a", ("GET", "/taskmanagers/host:driver/metrics", "get=a")),
    ("GET", "/taskmanagers/host%3Adriver/log", "", ("GET", "/taskmanagers/host:driver/log", "")),
    ("POST", "/savepoint-disposal", "", ("POST", "/savepoint-disposal", "")),
    ("GET", f"/savepoint-disposal/{JOB}", "", ("GET", f"/savepoint-disposal/{JOB}", "")),
]


@pytest.mark.parametrize(("method", "path", "query", "asked"), FORWARDED)
def test_what_is_of_one_job_is_forwarded_to_its_driver(
    method: str, path: str, query: str, asked: tuple[str, str, str], session: Session
) -> None:
    session.driver.answer = Answer(202, b'{"a":1}')
    body = {} if method == "POST" else None
    assert session.ask(method, path, body, query) == (202, {"a": 1})
    assert session.driver.asked == [(*asked, b"{}" if body is not None else b"")]


#: Method and path -> status code and a part of the answer, for jobs that have no driver.
WITHOUT_DRIVER: list[tuple[str, str, int, str]] = [
    ("GET", f"/jobs/{OTHER}", 200, '"state": "FAILED"'),
    ("GET", f"/jobs/{OTHER}/status", 200, '"status": "FAILED"'),
    ("GET", f"/jobs/{OTHER}/exceptions", 200, "a.Error"),
    ("GET", f"/jobs/{OTHER}/metrics", 200, "[]"),
    ("GET", f"/jobs/{OTHER}/execution-result", 200, '"class": "a.Error"'),
    ("GET", f"/jobs/{OTHER}/savepoints/{OTHER}", 404, "no archive that tells of this"),
    ("GET", f"/applications/{OTHER}", 200, '"FAILED": 9000'),
    ("GET", f"/applications/{OTHER}/exceptions", 200, "entries"),
    ("PATCH", f"/jobs/{OTHER}", 409, "has no driver: it is FAILED"),
    ("GET", f"/jobs/{OTHER}/yarn-cancel", 409, "has no driver"),
    ("POST", f"/jobs/{OTHER}/savepoints", 409, "has no driver"),
    ("GET", f"/jobs/{THIRD}/status", 200, "RESTARTING"),
    ("GET", f"/jobs/{THIRD}", 404, "is RESTARTING"),
    ("POST", f"/jobs/{THIRD}/stop", 409, "it is RESTARTING"),
    ("GET", f"/jobs/{UNKNOWN}", 404, f"Job {UNKNOWN} not found"),
    ("PATCH", f"/jobs/{UNKNOWN}", 404, "not found"),
    ("GET", "/jobs/xyz", 404, "Not found"),
    ("GET", "/taskmanagers/other", 404, "No TaskManager is known"),
    ("POST", "/jobs", 403, "runs Python programs"),
    ("DELETE", "/cluster", 403, "SIGTERM"),
    ("PUT", "/jobs/overview", 405, "knows no method"),
]


@pytest.mark.parametrize(("method", "path", "code", "told"), WITHOUT_DRIVER)
def test_a_job_without_a_driver_is_answered_for_by_its_archive(
    method: str, path: str, code: int, told: str, session: Session
) -> None:
    status, answer = session.ask(method, path, {} if method == "POST" else None)
    assert status == code and told in json.dumps(answer)
    assert session.driver.asked == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("PATCH", f"/jobs/{THIRD}"), ("GET", f"/jobs/{THIRD}/yarn-cancel"), ("POST", f"/applications/{THIRD}/cancel")],
)
def test_a_job_that_waits_for_its_restart_is_cancelled_by_giving_that_up(
    method: str, path: str, session: Session
) -> None:
    assert session.ask(method, path) == (202, {})
    assert session.children.cancelled == [("waits", False)]


def test_a_program_that_has_no_job_yet_is_cancelled_by_its_id(session: Session) -> None:
    session.children.programs = [(Child("hangs", "", [], {}, "", 0, job_id=UNKNOWN), "INITIALIZING")]
    assert session.ask("GET", f"/jobs/{UNKNOWN}/status") == (200, {"status": "INITIALIZING"})
    assert session.ask("PATCH", f"/jobs/{UNKNOWN}") == (202, {})
    assert session.children.cancelled == [("hangs", False)]


def test_a_cancellation_that_a_driver_has_accepted_is_remembered(session: Session, tmp_path: Path) -> None:
    session.driver.answer = Answer(202, b"{}")
    assert session.ask("PATCH", f"/jobs/{JOB}") == (202, {})
    assert session.children.cancelled == [("one", True)]
    # its program has another job, which goes on
    job_directory(tmp_path / "one/jobs/further", UNKNOWN, None)
    session.driver.answer = Answer(202, b"{}")
    assert session.ask("PATCH", f"/jobs/{JOB}") == (202, {})
    assert session.children.cancelled == [("one", True)]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", f"/jobs/{JOB}/yarn-cancel"), ("POST", f"/applications/{JOB}/cancel")]
)
def test_the_web_ui_cancels_nothing_where_it_may_not(method: str, path: str, tmp_path: Path) -> None:
    session = Session(tmp_path, web_cancel=False)
    assert session.ask(method, path)[0] == 403
    assert session.driver.asked == []
    assert session.ask("PATCH", f"/jobs/{JOB}")[0] == 200


def test_a_driver_that_does_not_answer_is_a_sentence_and_one_that_has_gone_leaves_its_archive(
    session: Session, tmp_path: Path
) -> None:
    session.driver.answer = DriverError("It hangs.")
    assert session.ask("GET", f"/jobs/{JOB}") == (502, {"errors": ["It hangs."]})
    assert session.ask("GET", "/taskmanagers/host:driver") == (502, {"errors": ["It hangs."]})
    assert session.ask("POST", "/savepoint-disposal", {})[0] == 409
    session.driver.answer = DriverError("Nobody is there.", is_gone=True)
    archive(tmp_path / "archive", JOB, "CANCELED")
    assert session.ask("GET", f"/jobs/{JOB}")[1]["state"] == "CANCELED"


def test_a_scrape_waits_for_all_drivers_until_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakeDriver):
        def forward(self, *asked: Any) -> Answer:
            time.sleep(float(self.host))
            return Answer(200, f'flink_a{{n="{self.url}"}} 1.0\n'.encode())

    monkeypatch.setattr(session_metrics, "SCRAPE_S", 2.0)
    drivers = [Slow(f"http://127.0.0.1:{number}", "0.5") for number in range(1, 11)]
    begun_s = time.monotonic()
    found = scrape([*drivers, Slow(host="60")], {}, "host").text  # type: ignore[list-item]
    assert found.count("flink_a{") == len(drivers) and time.monotonic() - begun_s < 30


# ------------------------------------------------------------------ programs


def upload(session: Session, name: str = "prog.py") -> str:
    body = f'--B\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n\r\nx\r\n--B--'.encode()
    receiver = session.api.receiver("POST", "/v1/jars/upload", {"content-type": "multipart/form-data; boundary=B"})
    assert receiver is not None
    receiver.write(body)
    answer = session.api.received(receiver, "POST", "/jars/upload")
    receiver.close()
    return Path(json.loads(answer.body)["filename"]).name


def test_a_program_is_uploaded_listed_run_and_deleted(session: Session) -> None:
    uploaded = upload(session)
    (listed,) = session.ask("GET", "/jars")[1]["files"]
    assert (listed["id"], listed["name"], listed["entry"]) == (uploaded, "prog.py", [])
    asked = {"programArgs": "a 'b c'", "parallelism": 3, "savepointPath": "/sp", "allowNonRestoredState": True}
    assert session.ask("POST", f"/jars/{uploaded}/run", asked) == (200, {"jobid": UNKNOWN})
    (child,) = session.children.submitted
    assert child.arguments == ["a", "b c"] and Path(child.program).read_text() == "x"
    assert child.settings == {
        "parallelism.default": "3",
        "execution.state-recovery.path": "/sp",
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    assert session.ask("DELETE", f"/jars/{uploaded}") == (200, {})
    # a restart needs no upload
    assert Path(child.program).exists() and session.ask("GET", "/jars")[1]["files"] == []
    assert session.ask("POST", f"/jars/{uploaded}/run", {})[0] == 404


def test_a_program_that_ends_before_it_has_a_job_is_told_of_with_its_log(tmp_path: Path) -> None:
    session = Session(tmp_path, code=1)
    code, answer = session.ask("POST", f"/jars/{upload(session)}/run", {})
    assert code == 400 and "(exit code 1) without a job" in answer["errors"][0]
    assert "password=******" in answer["errors"][0] and "secret" not in answer["errors"][0]


def test_nothing_is_uploaded_where_that_is_not_enabled(tmp_path: Path) -> None:
    session = Session(tmp_path, submits=False)
    assert session.api.receiver("POST", "/jars/upload", {}) is None
    assert session.ask("GET", "/jars") == (200, {"address": "", "files": []})
    for method, path in (("POST", "/jars/upload"), ("POST", "/jars/x/run"), ("DELETE", "/jars/x")):
        code, answer = session.ask(method, path)
        assert code == 403 and "web.submit.enable=true" in answer["errors"][0]


# ------------------------------------------------------------------ hostile requests

PATHS = [
    *(("GET", path) for path in ("/", "/config", "/jobs", "/jobs/overview", "/jars", "/taskmanagers/host:driver")),
    *(("GET", f"/jobs/{one}{rest}") for one in (JOB, OTHER, THIRD) for rest in ("", "/status", "/yarn-cancel")),
    *(("PATCH", f"/jobs/{one}") for one in (JOB, OTHER, THIRD)),
    ("POST", "/jars/upload"),
    ("POST", "/jars/x/run"),
    ("DELETE", "/jars/x"),
    ("POST", "/savepoint-disposal"),
]
STRANGERS: list[tuple[str, Mapping[str, str]]] = [
    ("no token", {"host": HOST}),
    ("a wrong token", {"host": HOST, "authorization": "Bearer wrong"}),
    ("a foreign host", {**KNOWN, "host": "evil.example"}),
    ("a foreign origin", {**KNOWN, "origin": "http://evil.example"}),
    (
        "a foreign page",
        {"host": HOST, "cookie": "=".join(Access(TOKEN).cookie), "sec-fetch-site": "cross-site"},
    ),
]


@pytest.mark.parametrize("headers", [case[1] for case in STRANGERS], ids=[case[0] for case in STRANGERS])
def test_who_may_not_ask_is_told_nothing_and_nothing_is_forwarded(headers: Mapping[str, str], session: Session) -> None:
    for method, path in PATHS:
        code, answer = session.ask(method, path, {}, headers=headers)
        assert code in (401, 403) and list(answer) == ["errors"], path
    assert session.driver.asked == [] and session.children.cancelled == [] and session.children.submitted == []


TRAVERSALS = ("..", "%2e%2e", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%00b", "..%5C..", "%ff%fe", "%0d%0aX:y")


@pytest.mark.parametrize("name", TRAVERSALS)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/{}"),
        ("GET", f"/jobs/{JOB}/{{}}"),
        ("GET", f"/jobs/{OTHER}/{{}}"),
        ("GET", "/taskmanagers/{}"),
        ("POST", "/jars/{}/run"),
        ("DELETE", "/jars/{}"),
    ],
)
def test_no_part_of_a_path_leads_elsewhere(method: str, path: str, name: str, session: Session) -> None:
    code, answer = session.ask(method, path.format(name), {} if method == "POST" else None)
    assert code == 404 and "root:" not in json.dumps(answer)
    assert session.driver.asked == []
