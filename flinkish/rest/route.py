"""A route of the REST API: a method and a path, and the function that answers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from flinkish.jobmanager.job.description import JobDescription, JobManagerDescription
from flinkish.jobmanager.job.operations import Operations
from flinkish.jobmanager.job.task_managers import ReachableTaskManager
from flinkish.runtime.task.stack_samples import StackSamples


class Jobs(Protocol):
    """The jobs of a driver, as routes need them."""

    def describe(self) -> JobManagerDescription:
        """All jobs, not older than a second."""

    def describe_job(self, job_id: str) -> JobDescription:
        """One job, not older than a second.

        Raises:
            FinalOperationError: there is no such job.
        """

    def stack_samples(self, job_id: str) -> StackSamples | None:
        """Stacks of the tasks of a job, which are sampled because of this question; without any before the first ones
        are there. None: that is switched off, or the job does not run."""

    @property
    def operations(self) -> Operations:
        """What is asked of the jobs."""

    def reach(self, task_manager: str) -> ReachableTaskManager:
        """The task manager with this id, which runs apart from the driver, to be asked for more than it reports.

        Raises:
            FinalOperationError: there is none that can be asked.
        """


@dataclass(frozen=True)
class Features:
    """What of the Web UI the driver's configuration allows."""

    #: whether programs can be uploaded and run
    web_submit: bool = False
    #: whether jobs can be cancelled
    web_cancel: bool = True


@dataclass(frozen=True)
class Asked:
    """What a client asks a route, once it is known who it is and that the path is one of the route's."""

    jobs: Jobs
    #: the time of the answer
    now_ms: int
    #: name of a parameter in the path -> its text, checked by its pattern
    path: Mapping[str, str] = field(default_factory=dict)
    #: name of a parameter behind the ``?`` -> its last text
    query: Mapping[str, str] = field(default_factory=dict)
    #: the JSON of the body; an empty object if there is none
    body: Mapping[str, Any] = field(default_factory=dict)
    features: Features = Features()


@dataclass(frozen=True)
class Text:
    """An answer that is no JSON."""

    text: str
    content_type: str = "text/plain; charset=UTF-8"


@dataclass(frozen=True)
class Status:
    """An answer with a status code of its own; all others are 200."""

    code: int
    value: Any


class NotFoundError(Exception):
    """There is no such thing: 404 with this sentence."""


class BadRequestError(Exception):
    """The request is malformed: 400 with this sentence."""


class ConflictError(Exception):
    """The thing is not in a state for this: 409 with this sentence."""


class ForbiddenError(Exception):
    """This cannot be asked of a driver, whoever asks: 403 with this sentence."""


class UnavailableError(Exception):
    """What would have to answer does not: 503 with this sentence."""


class UnsupportedError(Exception):
    """Nothing here can answer this, now or later: 501 with this sentence."""


#: What a parameter of a path may be; all others may be anything without a slash.
_PATTERNS = {
    "job": "[0-9a-f]{32}",
    "application": "[0-9a-f]{32}",
    "vertex": "[0-9a-f]{32}",
    "trigger": "[0-9a-f]{32}",
    "checkpoint": "[0-9]{1,18}",
    "subtask": "[0-9]{1,9}",
    "attempt": "[0-9]{1,9}",
}


@dataclass(frozen=True)
class Route:
    """A route; its path names parameters in braces: ``/jobs/{job}/vertices/{vertex}``.

    ``answer`` returns what becomes JSON, a `Text` or a `Status`, and raises `NotFoundError`, `BadRequestError`,
    `ConflictError`, `ForbiddenError`, `UnavailableError`, `UnsupportedError` or a FlinkishError.
    """

    method: str
    path: str
    answer: Callable[[Asked], Any]
    #: whether a body is a JSON object; of other routes nobody looks at it
    takes_json: bool = True

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of a path that is one of this route's, otherwise None. A parameter that does not have its form
        is not told apart from a wrong path here: who looks for a route with ``loose_match`` can."""
        found = _pattern(self.path, strict=True).fullmatch(path)
        return None if found is None else found.groupdict()

    def loose_match(self, path: str) -> bool:
        """Whether the path would be one of this route's if its parameters had their form."""
        return _pattern(self.path, strict=False).fullmatch(path) is not None


@cache
def _pattern(path: str, strict: bool) -> re.Pattern[str]:
    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        return f"(?P<{name}>{_PATTERNS.get(name, '[^/]+') if strict else '[^/]+'})"

    return re.compile(re.sub(r"\{(\w+)\}", one, path))
