"""The archive of a job has the answers of the views under the paths of Flink's history server."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from flinkish.cli.described import job_text
from flinkish.common import JobStatus
from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.archive import JobArchive
from flinkish.rest.views.archive import archive_of
from tests.support.described_jobs import NOW_MS, ask, finished_job

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
        *(f"{job}/checkpoints/details/{latest.id}/subtasks/{COUNT}", f"{job}/jobmanager/config", f"{job}/description"),
        *(vertex, f"{vertex}/subtasktimes", f"{vertex}/taskmanagers", f"{vertex}/accumulators"),
        *(f"{vertex}/subtasks/accumulators", f"{vertex}/subtasks/1", f"{vertex}/subtasks/1/attempts/0"),
        f"{vertex}/subtasks/1/attempts/0/accumulators",
    }
    assert expected <= set(found)
    assert {path: json.loads(text) for path, text in found.items()} == {path: ask((finished,), path) for path in found}


def test_a_job_that_failed_at_its_beginning_has_an_archive(beginning: JobDescription, extreme: JobDescription) -> None:
    assert json.loads(entries(beginning)["/jobs/overview"])["jobs"][0]["jid"] == beginning.id
    assert len(entries(extreme)) > 30


def test_a_job_writes_its_archive_at_its_end(tmp_path: Path) -> None:
    job = finished_job(jobmanager__archive__fs__dir=tmp_path / "archives")
    (file,) = (tmp_path / "archives").iterdir()
    assert file.name == job.id
    found = {entry["path"]: json.loads(entry["json"]) for entry in json.loads(file.read_text())["archive"]}
    assert found[f"/jobs/{job.id}"]["state"] == "FINISHED"
    assert found["/jobs/overview"]["jobs"][0]["end-time"] == job.end_time_ms


def test_a_job_whose_archive_cannot_be_written_ends_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "archives").write_text("a file")
    assert finished_job(jobmanager__archive__fs__dir=tmp_path / "archives").status == "FINISHED"
    assert "could not be written" in caplog.text


@pytest.mark.parametrize(
    ("status", "archives"), [(JobStatus.SUSPENDED, 0), (JobStatus.CANCELED, 1), (JobStatus.FAILED, 1)]
)
def test_a_job_that_may_go_on_has_no_archive(
    status: JobStatus, archives: int, tmp_path: Path, extreme: JobDescription
) -> None:
    JobArchive(str(tmp_path), lambda: extreme).job_done(status)
    assert len(list(tmp_path.iterdir())) == archives


def test_no_view_shows_what_spark_or_hadoop_hide() -> None:
    hidden = (
        *("spark__hadoop__fs__s3a__access__key", "spark__hadoop__dfs__adls__oauth2__credential"),
        *("spark__hadoop__my__authorization", "spark__hadoop__fs__azure__sas__shop", "spark__a__oauthbearer__config"),
    )
    job = finished_job(**dict.fromkeys(hidden, "HUNTER2"), spark__hadoop__fs__s3a__endpoint="SHOWN")
    described = json.loads(json.dumps(asdict(job), default=str))
    views = json.dumps(ask((job,), "/jobmanager/config")), archive_of(job, NOW_MS)
    for text in (*views, json.dumps(described), job_text(described, NOW_MS)):
        assert "HUNTER2" not in text
    shown = {one["key"]: one["value"] for one in ask((job,), "/jobmanager/config")}
    keys = {key.replace("__", ".") for key in hidden}
    assert keys <= set(shown) and {shown[key] for key in keys} == {"******"}
    assert shown["spark.hadoop.fs.s3a.endpoint"] == "SHOWN"


def test_views_answer_where_every_setting_is_hidden() -> None:
    job = finished_job(spark__redaction__regex=".")
    assert set(job.configuration.values()) == {"******"}
    assert "clicks" in archive_of(job, NOW_MS)
    for path in ("config", "jobmanager/config", "checkpoints", "checkpoints/config", "plan", ""):
        assert ask((job,), f"/jobs/{job.id}/{path}".rstrip("/"))
