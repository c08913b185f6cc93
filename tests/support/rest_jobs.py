"""Jobs for tests of the REST API, without a run: descriptions, and operations that the test completes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flinkish.common.completable_future import CompletableFuture
from flinkish.errors import FinalOperationError
from flinkish.jobmanager.job.description import (
    CheckpointsDescription,
    DriverDescription,
    JobDescription,
    JobManagerDescription,
)
from flinkish.jobmanager.job.operations import Operations, Request
from flinkish.jobmanager.job.task_managers import ReachableTaskManager
from flinkish.rest.access import Access
from flinkish.rest.api import Answer, Api
from flinkish.rest.route import Route
from flinkish.rest.served_jobs import ServedJobs
from flinkish.runtime.phases import Clock
from flinkish.runtime.task.stack_samples import StackSamples

JOB, OTHER, UNKNOWN = "a" * 32, "b" * 32, "0" * 32
TOKEN = "t0ken-of-the-driver"
HOST = "localhost:8081"
#: The headers of a request that is answered.
KNOWN: Mapping[str, str] = {"host": HOST, "authorization": f"Bearer {TOKEN}"}


def job(job_id: str = JOB, status: str = "RUNNING", name: str = "clicks") -> JobDescription:
    """The description of a job of which little is known."""
    return JobDescription(
        id=job_id,
        name=name,
        status=status,
        start_time_ms=1_000,
        end_time_ms=None,
        times_ms={"INITIALIZING": 1_000, status: 2_000},
        plan={"nodes": []},
        vertices=(),
        attempts=(),
        checkpoints=CheckpointsDescription(),
        metrics={"duration_ms": 1_000},
        accumulators={},
        exceptions=(),
        configuration={},
        state="",
        story=(),
        directory=None,
        driver=DriverDescription("host", 1),
    )


class FakeJobs:
    """Jobs that are what a test says. ``asked`` has the requests that were begun, ``outcomes`` their futures."""

    def __init__(self, *jobs: JobDescription, clock: Clock | None = None) -> None:
        self.jobs = {one.id: one for one in jobs or (job(),)}
        self.asked: list[Request] = []
        self.outcomes: list[CompletableFuture[Any]] = []
        self.described = 0
        self.samples: StackSamples | None = None
        self.operations = Operations(self._begin, clock=clock)

    def _begin(self, request: Request) -> CompletableFuture[Any]:
        self.asked.append(request)
        self.outcomes.append(CompletableFuture())
        return self.outcomes[-1]

    def describe(self) -> JobManagerDescription:
        self.described += 1
        return JobManagerDescription(DriverDescription("host", 1), "0.1.0", tuple(self.jobs.values()))

    def stack_samples(self, job_id: str) -> StackSamples | None:
        return self.samples

    def reach(self, task_manager: str) -> ReachableTaskManager:
        raise FinalOperationError(f"the task manager {task_manager} cannot be asked")

    def describe_job(self, job_id: str) -> JobDescription:
        if job_id not in self.jobs:
            raise FinalOperationError(f"this driver knows no job {job_id}")
        return self.jobs[job_id]


def api_of(jobs: FakeJobs, routes: Sequence[Route], **options: Any) -> Api:
    """An API of these jobs that asks for `TOKEN`."""
    return Api(ServedJobs(jobs), routes, Access(TOKEN), **options)


def ask(
    api: Api, method: str, path: str, body: bytes | str = b"", query: str = "", headers: Mapping[str, str] = KNOWN
) -> Answer:
    """What the API answers."""
    return api.answer(method, path, query, headers, body.encode() if isinstance(body, str) else body)
