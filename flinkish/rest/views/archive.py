"""The archive of a job that has ended, in the format that Flink's history server reads: the answers of the views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from flinkish.errors import FinalOperationError
from flinkish.jobmanager.job.description import JobDescription, JobManagerDescription
from flinkish.jobmanager.job.operations import Operations
from flinkish.jobmanager.job.task_managers import ReachableTaskManager
from flinkish.rest.route import Asked, Route
from flinkish.rest.views import checkpoints, description, jobs, vertices

#: The routes whose answers the archive of a job has.
_ROUTES = (
    *(route for route in jobs.ROUTES if route.path not in ("/jobs", "/jobs/{job}/status")),
    *(route for route in vertices.ROUTES if not route.path.endswith("/flamegraph")),
    *checkpoints.ROUTES,
    # for our own page, in a session process
    *description.ROUTES,
)
_LEFT_OUT = ("/jobs/{job}/execution-result", "/applications/{application}/exceptions")


@dataclass(frozen=True)
class _OneJob:
    """A job as all jobs of a driver."""

    job: JobDescription
    version: str

    def describe(self) -> JobManagerDescription:
        """The job alone."""
        return JobManagerDescription(self.job.driver, self.version, (self.job,))

    def stack_samples(self, job_id: str) -> None:
        """None: no job runs here."""

    def reach(self, task_manager: str) -> ReachableTaskManager:
        """An archive reaches nobody."""
        raise FinalOperationError(f"No TaskExecutor registered under {task_manager}")

    def describe_job(self, job_id: str) -> JobDescription:
        """The job.

        Raises:
            FinalOperationError: it has another id.
        """
        if job_id != self.job.id:
            raise FinalOperationError(f"there is no job {job_id}")
        return self.job

    @property
    def operations(self) -> Operations:
        """Nothing can be asked of a job in an archive.

        Raises:
            FinalOperationError: always.
        """
        raise FinalOperationError(f"the job {self.job.id} has ended")


def archive_of(job: JobDescription, now_ms: int, version: str = "") -> str:
    """The content of the archive of a job."""
    asked = _OneJob(job, version)
    entries = []
    for route in _ROUTES:
        if route.path in _LEFT_OUT:
            continue
        for path in _paths(route, job):
            answer = route.answer(Asked(asked, now_ms, path))
            entries.append({"path": route.path.format(**path), "json": json.dumps(answer, separators=(",", ":"))})
    return json.dumps({"archive": entries}, separators=(",", ":"))


def _paths(route: Route, job: JobDescription) -> Iterator[dict[str, str]]:
    """The parameters of all paths of a route that there are for a job."""
    found: list[dict[str, str]] = [{"job": job.id}]
    if "{checkpoint}" in route.path:
        # as many as the list of them has
        numbers = {one.id for one in job.checkpoints.history[-checkpoints.HISTORY :]}
        latest = (job.checkpoints.latest_completed, job.checkpoints.latest_savepoint, job.checkpoints.latest_failed)
        numbers |= {one.id for one in latest if one is not None}
        known = {one.id for one in job.checkpoints.history}
        found = [{**path, "checkpoint": str(number)} for path in found for number in sorted(numbers & known)]
    if "{vertex}" in route.path:
        found = [{**path, "vertex": vertex.job_vertex_id} for path in found for vertex in job.vertices]
    if "{subtask}" in route.path:
        subtasks = {vertex.job_vertex_id: vertex.subtasks for vertex in job.vertices}
        found = [
            {**path, "subtask": str(one.subtask), "attempt": str(one.current.attempt)}
            for path in found
            for one in subtasks[path["vertex"]]
        ]
    yield from found
