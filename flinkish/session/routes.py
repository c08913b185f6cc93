"""The REST API of the session process: lists of the jobs of all drivers, requests that are forwarded to the driver of a
job or answered from its archive, and programs that are uploaded and run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flinkish import __version__
from flinkish.common.completable_future import CompletableFuture
from flinkish.errors import FinalOperationError
from flinkish.jobmanager.job.description import DriverDescription, JobDescription, JobManagerDescription
from flinkish.jobmanager.job.operations import Operations, Request
from flinkish.jobmanager.job.task_managers import ReachableTaskManager
from flinkish.rest.api import Answer, Receiver, refusal, unless_known
from flinkish.rest.failures import failure_cause_of
from flinkish.rest.route import Asked, ConflictError, ForbiddenError, NotFoundError, Route, Text
from flinkish.rest.routes import ROUTES
from flinkish.rest.views.cluster import APPLICATION_STATES, application_status
from flinkish.rest.views.jobs import APPLICATION_RESULTS
from flinkish.rest.views.shapes import ENDED
from flinkish.session.archives import Archives
from flinkish.session.children import Children
from flinkish.session.drivers import Driver, DriverError
from flinkish.session.metrics import scrape
from flinkish.session.registry import Json, Registry, Snapshot
from flinkish.session.submission import Submission

_OF_JOB = re.compile(r"/(jobs|applications)/([0-9a-f]{32})(/.*)?")
_OF_TASK_MANAGER = re.compile(r"/taskmanagers/([^/]+)(/.*)?")
_DISPOSAL = "/savepoint-disposal"
#: Requests by which a job is cancelled: method, kind, and what stands behind the id.
_CANCELS = {("PATCH", "jobs", ""), ("GET", "jobs", "/yarn-cancel"), ("POST", "applications", "/cancel")}


class NoJobs:
    """The jobs of the session process itself: none. Views of the process need no more."""

    def __init__(self, driver: DriverDescription) -> None:
        self._driver = driver
        self.operations = Operations(self._refuse)

    def _refuse(self, request: Request) -> CompletableFuture[Any]:
        raise FinalOperationError("the session process has no jobs of its own")

    def describe(self) -> JobManagerDescription:
        """This process, without jobs."""
        return JobManagerDescription(self._driver, __version__, ())

    def stack_samples(self, job_id: str) -> None:
        """None: no job runs here."""

    def describe_job(self, job_id: str) -> JobDescription:
        """Raises FinalOperationError: there is no such job."""
        raise FinalOperationError(f"Job {job_id} not found")

    def reach(self, task_manager: str) -> ReachableTaskManager:
        """Raises FinalOperationError: there is no such task manager."""
        raise FinalOperationError(f"No TaskExecutor registered under {task_manager}")


class SessionApi:
    """Answers for the jobs of drivers (`flinkish.rest.api.Beyond`). Any thread may use it.

    Args:
        registry: the jobs.
        archives: those that have ended.
        children: the drivers that were started here; None: none can be.
        submission: uploads and runs programs; None: that is not allowed.
        web_cancel: whether jobs can be cancelled in the Web UI.
    """

    def __init__(
        self,
        registry: Registry,
        archives: Archives,
        children: Children | None,
        submission: Submission | None,
        web_cancel: bool = True,
    ) -> None:
        self._web_cancel = web_cancel
        self._registry = registry
        self._archives = archives
        self._children = children
        self._submission = submission

    # ------------------------------------------------------------------ of one job

    def receiver(self, method: str, path: str, headers: Mapping[str, str]) -> Receiver | None:
        """What takes an upload."""
        if self._submission is None or (method, path) != ("POST", "/jars/upload"):
            return None
        return self._submission.receiver(headers)

    def answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """The answer for a job, a task manager or a savepoint; None: the path is of none of them."""
        method = "GET" if method == "HEAD" else method
        job = _OF_JOB.fullmatch(path)
        if job is not None:
            return self._of_job(method, job, query, headers, body)
        manager = _OF_TASK_MANAGER.fullmatch(path)
        if manager is not None and manager[1] != "metrics":
            known = self._registry.jobs().task_managers.get(manager[1])
            if known is None:
                raise NotFoundError(f"No TaskManager is known under the ID {manager[1]}.")
            return _forwarded(known[1], method, path, query, headers, body)
        if path == _DISPOSAL or path.startswith(f"{_DISPOSAL}/"):
            return self._of_savepoint(method, path, query, headers, body)
        return None

    def _of_job(self, method: str, found: re.Match[str], query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        kind, job_id, rest = found[1], found[2], found[3] or ""
        cancels = (method, kind, rest) in _CANCELS
        if cancels and method != "PATCH" and not self._web_cancel:
            raise ForbiddenError("Jobs are not cancelled in the Web UI here (web.cancel.enable); use 'flink cancel'.")
        for _ in range(2):
            jobs = self._registry.jobs()
            driver = jobs.drivers.get(job_id)
            if driver is None:
                if not cancels:
                    break
                # one may have begun just now
                self._registry.forget()
                continue
            answer = _forwarded_or_gone(driver, method, found[0], query, headers, body)
            if answer is None or method != "GET" or cancels:
                self._registry.forget()
            if answer is not None:
                if cancels and answer.status < 300:
                    self._cancel(jobs, job_id, asked=True)
                return answer
            # it has ended just now; there may be another one
        line = jobs.jobs.get(job_id)
        if line is None:
            raise NotFoundError(f"Job {job_id} not found")
        if cancels and line["state"] not in ENDED and self._cancel(jobs, job_id, asked=False):
            return Answer(202, b"{}")
        if method != "GET" or cancels:
            raise ConflictError(f"Job {job_id} has no driver: it is {line['state']}.")
        value = self._archived(line, kind, job_id, rest)
        if value is None:
            raise NotFoundError(
                f"Job {job_id} is {line['state']}: it has no driver, and no archive that tells of this "
                "(jobmanager.archive.fs.dir)."
            )
        return unless_known(Answer(200, value.encode()), headers)

    def _cancel(self, jobs: Snapshot, job_id: str, asked: bool) -> bool:
        """Whether the session process sees to the end of a job without a driver, or one whose driver was asked for it:
        it is not started again then, unless its program has further jobs that go on."""
        if self._children is None:
            return False
        own = {str(self._children.folder / one.name) for one in self._children.all() if one.job_id == job_id}
        found = own | {path for path, one in jobs.directories.items() if one.job_id == job_id}
        others = {path for path, one in jobs.directories.items() if one.is_owned} - found if asked else ()
        alone = [path for path in found if not any(other.startswith(f"{path}/") for other in others)]
        cancelled = [path for path in alone if self._children.cancel(path, asked)]
        self._registry.forget()
        return bool(cancelled)

    def _archived(self, line: Json, kind: str, job_id: str, rest: str) -> str | None:
        """The JSON for a job without a driver; None: nobody knows it."""
        if kind == "applications":
            if rest == "":
                return json.dumps(self._application(line))
            if rest == "/exceptions":
                return '{"exceptionHistory":{"entries":[]}}'
        elif rest == "/status":
            return json.dumps({"status": line["state"]})
        elif rest == "/execution-result" and line["state"] in ENDED:
            return json.dumps(self._result(line))
        return self._archives.answer(job_id, f"/jobs/{job_id}{rest}")

    def _application(self, line: Json) -> Json:
        details = json.loads(self._archives.answer(line["jid"], f"/jobs/{line['jid']}") or "{}")
        times = dict.fromkeys(APPLICATION_STATES, 0)
        for state, time_ms in details.get("timestamps", {}).items():
            name = application_status(state)
            times[name] = max(times.get(name, 0), time_ms)
        return {**_application(line), "timestamps": times, "jobs": [line]}

    def _result(self, line: Json) -> Json:
        result = {
            "id": line["jid"],
            "name": line["name"],
            "application-id": line["jid"],
            "application-status": APPLICATION_RESULTS.get(line["state"], "UNKNOWN"),
            "accumulator-results": {},
            "net-runtime": line["duration"],
            "start-time": line["start-time"],
            "end-time": line["end-time"],
        }
        if line["state"] == "FAILED":
            history = json.loads(self._archives.answer(line["jid"], f"/jobs/{line['jid']}/exceptions") or "{}")
            last: Json = next(iter(history.get("exceptionHistory", {}).get("entries", ())), {})
            name, trace = (
                str(last.get("exceptionName", "flinkish.errors.FlinkishError")),
                str(last.get("stacktrace", "")),
            )
            result["failure-cause"] = failure_cause_of(name, trace.partition("\n")[0].removeprefix(f"{name}: "), trace)
        return {"status": {"id": "COMPLETED"}, "job-execution-result": result}

    def _of_savepoint(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> Answer | None:
        """Any driver may dispose of a savepoint; the one that has begun it knows of its end."""
        refused: Answer | None = None
        for driver in self._registry.jobs().all_drivers:
            try:
                answer = driver.forward(method, path, query, headers, body)
            except DriverError:
                continue
            if answer.status < 400:
                return answer
            refused = refused or answer
            if method != "GET":
                break
        if refused is None:
            raise ConflictError("No driver runs that could dispose of a savepoint: 'flinkish savepoint dispose' can.")
        return refused

    # ------------------------------------------------------------------ lists

    def routes(self) -> tuple[Route, ...]:
        """What is answered here: lists, programs, and what there is to say of this process."""
        of_process = (route for route in ROUTES if route.path.startswith(("/jobmanager/", "/config")))
        return (*self._routes(), *of_process)

    def _routes(self) -> Iterator[Route]:
        yield Route("GET", "/overview", self._overview)
        yield Route("GET", "/jobs", self._ids)
        yield Route("GET", "/jobs/overview", lambda _: {"jobs": list(self._registry.jobs().jobs.values())})
        yield Route("GET", "/applications/overview", self._applications)
        yield Route(
            "GET",
            "/taskmanagers",
            lambda _: {"taskmanagers": [one for one, _ in self._registry.jobs().task_managers.values()]},
        )
        for path in ("/jobs/metrics", "/taskmanagers/metrics"):
            yield Route("GET", path, lambda _: [])
        yield Route("GET", "/metrics", self._metrics)
        yield Route("POST", "/jobs", _refused(_NO_GRAPHS), takes_json=False)
        yield Route("DELETE", "/cluster", _refused(_NO_END), takes_json=False)
        if self._submission is not None:
            yield from self._submission.routes()
            return
        yield Route("GET", "/jars", lambda _: {"address": "", "files": []})
        for method, path in (
            ("POST", "/jars/upload"),
            ("POST", "/jars/{jar}/run"),
            ("GET", "/jars/{jar}/plan"),
            ("POST", "/jars/{jar}/plan"),
            ("DELETE", "/jars/{jar}"),
        ):
            yield Route(method, path, _refused(_NO_UPLOADS), takes_json=False)

    def _ids(self, asked: Asked) -> Json:
        return {"jobs": [{"id": one["jid"], "status": one["state"]} for one in self._registry.jobs().jobs.values()]}

    def _applications(self, asked: Asked) -> Json:
        return {"applications": [_application(one) for one in self._registry.jobs().jobs.values()]}

    def _metrics(self, asked: Asked) -> Text:
        overview = self._overview(asked)
        own = {
            "numRunningJobs": self._registry.jobs().running,
            "numRegisteredTaskManagers": overview["taskmanagers"],
            "taskSlotsTotal": overview["slots-total"],
            "taskSlotsAvailable": overview["slots-available"],
        }
        return scrape(self._registry.jobs().all_drivers, own, asked.jobs.describe().driver.host)

    def _overview(self, asked: Asked) -> Json:
        jobs = self._registry.jobs()
        states = [one["state"] for one in jobs.jobs.values()]
        managers = [one for one, _ in jobs.task_managers.values()]
        return {
            "taskmanagers": len(managers),
            "slots-total": sum(one.get("slotsNumber", 0) for one in managers),
            "slots-available": sum(one.get("freeSlots", 0) for one in managers),
            "jobs-running": sum(state not in ENDED for state in states),
            "jobs-finished": states.count("FINISHED"),
            "jobs-cancelled": states.count("CANCELED"),
            "jobs-failed": states.count("FAILED"),
            "flink-version": __version__,
            "flink-commit": "flinkish",
        }


_NO_GRAPHS = (
    "flinkish runs Python programs: upload yours by POST /jars/upload (web.submit.enable), or start it with 'flinkish "
    "run PROGRAM.py'."
)
_NO_UPLOADS = (
    "Programs cannot be uploaded here: start the session with -D web.submit.enable=true, or start yours with 'flinkish "
    "run PROGRAM.py'."
)
_NO_END = "The session process ends by SIGTERM, and its drivers go on: cancel or stop their jobs."


def _refused(sentence: str) -> Callable[[Asked], Any]:
    def answer(asked: Asked) -> Any:
        raise ForbiddenError(sentence)

    return answer


def _application(line: Json) -> Json:
    kept = {name: line[name] for name in ("start-time", "end-time", "duration")}
    status = application_status(line["state"])
    return {"id": line["jid"], "name": line["name"], **kept, "status": status, "jobs": {line["state"]: 1}}


def _forwarded(driver: Driver, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """What a driver answers; a sentence if it does not."""
    try:
        return driver.forward(method, path, query, headers, body)
    except DriverError as error:
        return refusal(error.code, str(error))


def _forwarded_or_gone(
    driver: Driver, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> Answer | None:
    """The same; None if the driver has ended."""
    try:
        return driver.forward(method, path, query, headers, body)
    except DriverError as error:
        return None if error.is_gone else refusal(error.code, str(error))
