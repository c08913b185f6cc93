"""The views of checkpoints tell of those that are kept, that have failed, and with which the job has begun."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from flinkish.jobmanager.job.description import CheckpointsDescription, JobDescription
from flinkish.jobmanager.job.settings import CheckpointSettings
from tests.support.described_jobs import ask, finished_job, savepoint_of_job

COUNT = "b71731f1c0df9c3076c4a455334d0ad6"


def checkpoints(job: JobDescription, path: str = "") -> Any:
    return ask((job,), f"/jobs/{job.id}/checkpoints{path}")


def test_checkpoints_are_counted_and_the_newest_come_first(finished: JobDescription) -> None:
    found = checkpoints(finished)
    completed = found["counts"]["completed"]
    assert found["counts"] == {
        "restored": 0,
        "total": completed,
        "in_progress": 0,
        "completed": completed,
        "failed": 0,
    }
    assert completed >= 3
    numbers = [one["id"] for one in found["history"]]
    assert numbers == sorted(numbers, reverse=True)
    assert found["latest"]["completed"] == found["history"][0]
    assert found["latest"]["failed"] is None
    assert [one["discarded"] for one in found["history"]][:3] == [False, False, True], "two are retained"
    assert found["latest"]["completed"]["checkpointed_size"] > 0, "what was written"
    durations = found["summary"]["end_to_end_duration"]
    assert 0 <= durations["min"] <= durations["p50"] <= durations["p999"] == durations["max"]


def test_a_checkpoint_has_a_part_for_each_vertex_and_subtask(finished: JobDescription) -> None:
    latest = checkpoints(finished)["latest"]["completed"]
    found = checkpoints(finished, f"/details/{latest['id']}")
    assert set(found["tasks"]) == {vertex.job_vertex_id for vertex in finished.vertices}
    part = found["tasks"][COUNT]
    assert part["state_size"] == found["state_size"] > 0
    assert (part["num_subtasks"], part["num_acknowledged_subtasks"], found["num_subtasks"]) == (2, 2, 4)
    subtasks = checkpoints(finished, f"/details/{latest['id']}/subtasks/{COUNT}")
    assert [one["className"] for one in subtasks["subtasks"]] == ["completed", "completed"]
    assert subtasks["subtasks"][0]["ack_timestamp"] == latest["latest_ack_timestamp"]
    for older in checkpoints(finished)["history"][:2]:
        subtasks = checkpoints(finished, f"/details/{older['id']}/subtasks/{COUNT}")
        assert sum(one["state_size"] for one in subtasks["subtasks"]) == older["state_size"] > 0


def test_failed_and_pending_ones_say_so(extreme: JobDescription) -> None:
    found = checkpoints(extreme)
    pending, failed, *_ = found["history"]
    assert (pending["className"], pending["status"], pending["latest_ack_timestamp"]) == (
        "in_progress",
        "IN_PROGRESS",
        -1,
    )
    assert pending["end_to_end_duration"] == 0, "the clock was set back"
    assert (failed["className"], failed["failure_message"], failed["failure_timestamp"]) == ("failed", "", 2_000)
    assert found["latest"]["savepoint"]["checkpoint_type"] == "SAVEPOINT"
    assert found["latest"]["savepoint"]["savepointFormat"] == "CANONICAL"
    parts = checkpoints(extreme, f"/details/{pending['id']}/subtasks/{extreme.vertices[0].job_vertex_id}")["subtasks"]
    assert {part["status"] for part in parts} == {"pending_or_failed"}


def test_what_the_job_has_begun_with_is_told(tmp_path: Path) -> None:
    path = savepoint_of_job(tmp_path / "savepoints")
    job = finished_job(execution__state_recovery__path=path, flinkish__job__dir=tmp_path / "again")
    restored = checkpoints(job)["latest"]["restored"]
    assert (restored["external_path"], restored["is_savepoint"]) == (path, True)
    assert job.start_time_ms <= restored["restore_timestamp"] <= (job.end_time_ms or 0)
    assert checkpoints(job)["counts"]["restored"] == 1


def test_without_checkpoints_all_counts_are_zero_and_the_interval_has_no_end(running: JobDescription) -> None:
    job = replace(running, checkpoints=CheckpointsDescription(), checkpoint_settings=CheckpointSettings())
    assert set(checkpoints(job)["counts"].values()) == {0}
    assert checkpoints(job)["summary"]["state_size"]["p50"] == "NaN"
    config = checkpoints(job, "/config")
    assert (config["interval"], config["externalization"]["enabled"]) == (9223372036854775807, False)


def test_the_settings_are_those_of_the_job(finished: JobDescription) -> None:
    config = checkpoints(finished, "/config")
    assert (config["interval"], config["mode"], config["max_concurrent"]) == (1, "exactly_once", 1)
    assert config["externalization"] == {"enabled": True, "delete_on_cancellation": True}
