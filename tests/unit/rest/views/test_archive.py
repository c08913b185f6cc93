"""The archive of a job has the answers of the views under the paths of Flink's history server."""

from __future__ import annotations

import json

from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.views.archive import archive_of
from tests.support.described_jobs import NOW_MS, ask

COUNT = "b71731f1c0df9c3076c4a455334d0ad6"


def entries(job: JobDescription) -> dict[str, str]:
    archive = json.loads(archive_of(job, NOW_MS))
    assert set(archive) == {"archive"}
    found = {entry["path"]: entry["json"] for entry in archive["archive"]}
    assert len(found) == len(archive["archive"])
    return found


def test_the_archive_has_what_the_views_answer(finished: JobDescription) -> None:
    found = entries(finished)
    job, vertex = f"/jobs/{finished.id}", f"/jobs/{finished.id}/vertices/{COUNT}"
    latest = finished.checkpoints.latest_completed
    assert latest is not None
    expected = {
        *("/jobs/overview", job, f"{job}/plan", f"{job}/config", f"{job}/exceptions", f"{job}/accumulators"),
        *(f"{job}/checkpoints", f"{job}/checkpoints/config", f"{job}/checkpoints/details/{latest.id}"),
        *(f"{job}/checkpoints/details/{latest.id}/subtasks/{COUNT}", f"{job}/jobmanager/config"),
        *(vertex, f"{vertex}/subtasktimes", f"{vertex}/taskmanagers", f"{vertex}/accumulators"),
        *(f"{vertex}/subtasks/accumulators", f"{vertex}/subtasks/1", f"{vertex}/subtasks/1/attempts/0"),
        f"{vertex}/subtasks/1/attempts/0/accumulators",
    }
    assert expected <= set(found)
    assert {path: json.loads(text) for path, text in found.items()} == {path: ask((finished,), path) for path in found}


def test_a_job_that_failed_at_its_beginning_has_an_archive(beginning: JobDescription, extreme: JobDescription) -> None:
    assert json.loads(entries(beginning)["/jobs/overview"])["jobs"][0]["jid"] == beginning.id
    assert len(entries(extreme)) > 30
