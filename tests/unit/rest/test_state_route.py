"""State is looked up by uid, name and key in the latest checkpoint of a job, by a process beside the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.route import Asked, BadRequestError, ConflictError, NotFoundError
from flinkish.rest.state import state
from tests.support import described_jobs


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobDescription:
    """Its latest checkpoint is a savepoint, which is still there at its end."""
    folder = tmp_path_factory.mktemp("job")
    found = described_jobs.checkpointed_job(folder)
    latest = found.checkpoints.latest_completed
    assert latest is not None
    saved = replace(latest, path=described_jobs.savepoint_of_job(folder / "savepoints"))
    return replace(found, checkpoints=replace(found.checkpoints, latest_completed=saved))


def looked_up(job: JobDescription, **query: str) -> Any:
    return state(Asked(described_jobs.FixedJobs((job,)), 0, {"job": job.id}, query))


def test_the_states_are_listed_and_one_is_searched_by_key(job: JobDescription) -> None:
    listed = looked_up(job)
    assert [(one["uid"], one["state"], one["kind"], one["rows"]) for one in listed["states"]] == [
        ("count", "last", "value", 5)
    ]
    latest = job.checkpoints.latest_completed
    assert latest is not None and (listed["checkpoint"], listed["path"]) == (latest.id, latest.path)
    every = looked_up(job, uid="count", state="last")
    values = {one["key"]: one["value"] for one in every["entries"]}
    assert sorted(values) == ["k0", "k1", "k2", "k3", "k4"] and every["more"] is False
    (found,) = looked_up(job, uid="count", state="last", key="k3")["entries"]
    assert (found["key"], found["value"]) == ("k3", values["k3"])


@pytest.mark.parametrize(
    ("query", "error", "text"),
    [
        ({"uid": "count"}, BadRequestError, "A uid goes with a state"),
        ({"uid": "count", "state": "a\nb"}, BadRequestError, "printable texts"),
        ({"uid": "count", "state": "x" * 1_001}, BadRequestError, "at most 1,000 characters"),
        ({"uid": "count", "state": "--help"}, ConflictError, "there is no state '--help' of an operator"),
        ({"uid": "--version", "state": "last"}, ConflictError, "with the uid '--version'"),
    ],
)
def test_what_cannot_be_looked_up_is_refused_in_a_sentence(
    job: JobDescription, query: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        looked_up(job, **query)


def test_a_job_without_a_checkpoint_has_no_state_to_show() -> None:
    with pytest.raises(NotFoundError, match="has no checkpoint yet"):
        looked_up(described_jobs.finished_job())
