"""The views of jobs and of the cluster say what the descriptions say, in Flink's words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.route import BadRequestError, NotFoundError
from flinkish.rest.views import ROUTES
from tests.support.described_jobs import NOW_MS, ask

#: Flink's ids of operators with these uids.
SRC, COUNT = "f362c87ffabe89c8a91fa7d0a523ba6c", "b71731f1c0df9c3076c4a455334d0ad6"


def test_a_job_is_listed_with_its_times_and_tasks(running: JobDescription, finished: JobDescription) -> None:
    first, second = ask((running, finished), "/jobs/overview")["jobs"]
    assert (first["jid"], first["state"], first["end-time"]) == (running.id, "RUNNING", -1)
    assert first["duration"] == NOW_MS - running.start_time_ms
    # a subtask of the source may have had its share
    assert first["tasks"]["running"] + first["tasks"]["finished"] == first["tasks"]["total"] == 4
    assert first["tasks"]["running"] >= 2
    assert (second["state"], second["tasks"]["finished"]) == ("FINISHED", 4)
    assert second["end-time"] - second["start-time"] == second["duration"]
    assert ask((running,), "/jobs") == {"jobs": [{"id": running.id, "status": "RUNNING"}]}


def test_a_job_has_its_vertices_under_flinks_ids_and_a_plan_with_ship_strategies(running: JobDescription) -> None:
    found = ask((running,), f"/jobs/{running.id}")
    assert [vertex["id"] for vertex in found["vertices"]] == [SRC, COUNT]
    source, count = found["vertices"]
    assert (source["status"], source["parallelism"], source["maxParallelism"]) == ("RUNNING", 2, 16)
    assert source["metrics"]["write-records"] == 30 == count["metrics"]["read-records"]
    assert source["metrics"]["write-bytes"] == count["metrics"]["read-bytes"] > 500
    assert all(value for name, value in source["metrics"].items() if name.endswith("-complete"))
    assert source["metrics"]["accumulated-busy-time"] >= 0
    assert found["status-counts"]["RUNNING"] == 2
    assert found["timestamps"]["RUNNING"] > 0 == found["timestamps"]["FAILED"]
    assert found["plan"]["jid"] == running.id
    first, second = found["plan"]["nodes"]
    assert "inputs" not in first
    assert second["inputs"] == [{"num": 0, "id": SRC, "ship_strategy": "HASH", "exchange": "pipelined_bounded"}]
    assert first["description"] == "Source: events<br/>+- twice &lt;it&gt;<br/>"
    assert ask((running,), f"/jobs/{running.id}/plan") == {"plan": found["plan"]}


def test_the_configuration_of_a_job_has_its_parameters_and_restart_strategy(running: JobDescription) -> None:
    found = ask((running,), f"/jobs/{running.id}/config")["execution-config"]
    assert found["user-config"] == {"mode": "test", "shop": "4"}
    assert found["restart-strategy"] == "fixed-delay: 1 restarts, 0 s apart"
    pairs = ask((running,), f"/jobs/{running.id}/jobmanager/config")
    assert {"key": "execution.target", "value": "minicluster"} in pairs
    assert ask((running,), "/jobmanager/config") == pairs


def test_hidden_parameters_lead_to_none(extreme: JobDescription) -> None:
    found = ask((extreme,), f"/jobs/{extreme.id}/config")["execution-config"]
    assert (found["user-config"], found["job-parallelism"]) == ({}, 2)


def test_exceptions_come_newest_first_with_the_traceback_of_the_program(restarted: JobDescription) -> None:
    (entry,) = ask((restarted,), f"/jobs/{restarted.id}/exceptions")["exceptionHistory"]["entries"]
    assert entry["exceptionName"] == "flinkish.errors.UserCodeError"
    assert "the server is away at 25" in entry["stacktrace"] and "described_jobs.py" in entry["stacktrace"]
    assert entry["taskName"].startswith("Totals -> Sink: Out (") and entry["taskName"].endswith(" - execution #0")
    assert entry["failureLabels"]["who"] == "the author of the job"


@pytest.mark.parametrize(
    ("query", "messages", "truncated"),
    [
        ({}, [True, False], False),
        ({"maxExceptions": "1"}, [True], True),
        ({"failureLabelFilter": "retried:true"}, [False], False),
        ({"failureLabelFilter": "retryable:false,who:the author of the job"}, [True], False),
        ({"failureLabelFilter": "who:nobody"}, [], False),
    ],
)
def test_exceptions_are_counted_and_filtered(
    query: dict[str, str], messages: list[bool], truncated: bool, extreme: JobDescription
) -> None:
    """The newer one is that of the job, with the other one beside it."""
    history = ask((extreme,), f"/jobs/{extreme.id}/exceptions", **query)["exceptionHistory"]
    assert [bool(entry["concurrentExceptions"]) for entry in history["entries"]] == messages
    assert history["truncated"] == truncated


@pytest.mark.parametrize("query", [{"maxExceptions": "x"}, {"maxExceptions": "²"}, {"failureLabelFilter": "x"}])
def test_a_malformed_query_is_refused(query: dict[str, str], extreme: JobDescription) -> None:
    with pytest.raises(BadRequestError):
        ask((extreme,), f"/jobs/{extreme.id}/exceptions", **query)


def test_a_place_of_an_exception_is_told_by_its_fields(extreme: JobDescription) -> None:
    older = ask((extreme,), f"/jobs/{extreme.id}/exceptions")["exceptionHistory"]["entries"][1]
    assert (older["endpoint"], older["taskManagerId"], older["taskName"]) == (
        "h",
        "h-1-driver-host-1",
        "z (1/1) - execution #6",
    )


def test_accumulators_of_a_job_have_their_classes(finished: JobDescription) -> None:
    assert ask((finished,), f"/jobs/{finished.id}/accumulators")["user-task-accumulators"] == [
        {"name": "lengths", "type": "Histogram", "value": "{2: 60}"},
        {"name": "seen", "type": "LongCounter", "value": "60"},
    ]


@pytest.mark.parametrize(
    ("status", "application"),
    [
        ("FINISHED", "SUCCEEDED"),
        ("FAILED", "FAILED"),
        ("CANCELED", "CANCELED"),
        ("SUSPENDED", "UNKNOWN"),
        ("RUNNING", None),
    ],
)
def test_a_result_is_there_when_the_job_has_ended(
    status: str, application: str | None, finished: JobDescription
) -> None:
    job = replace(finished, status=status)
    found = ask((job,), f"/jobs/{job.id}/execution-result")
    assert ask((job,), f"/jobs/{job.id}/status") == {"status": status}
    if application is None:
        assert found == {"status": {"id": "IN_PROGRESS"}, "job-execution-result": None}
    else:
        assert found["status"] == {"id": "COMPLETED"}
        assert found["job-execution-result"]["application-status"] == application
        assert (
            found["job-execution-result"]["net-runtime"]
            == found["job-execution-result"]["end-time"] - (found["job-execution-result"]["start-time"])
        )


def test_a_job_that_has_failed_has_a_cause_that_flinks_client_reads(failed: JobDescription) -> None:
    result = ask((failed,), f"/jobs/{failed.id}/execution-result")["job-execution-result"]
    cause = result["failure-cause"]
    assert (result["application-status"], cause["class"]) == ("FAILED", "flinkish.errors.UserCodeError")
    assert "the server is away at 25" in cause["stack-trace"] and cause["serialized-throwable"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [("INITIALIZING", "CREATED"), ("CANCELLING", "CANCELING"), ("RESTARTING", "RUNNING"), ("FAILED", "FAILED")],
)
def test_an_application_has_the_job_and_its_id(status: str, expected: str, running: JobDescription) -> None:
    job = replace(running, status=status, times_ms={status: 7})
    (listed,) = ask((job,), "/applications/overview")["applications"]
    assert (listed["id"], listed["status"], listed["jobs"]) == (job.id, expected, {status: 1})
    found = ask((job,), f"/applications/{job.id}")
    assert (found["timestamps"][expected], found["jobs"][0]["jid"]) == (7, job.id)


def test_the_overview_counts_jobs_slots_and_task_managers(
    running: JobDescription, finished: JobDescription, failed: JobDescription
) -> None:
    found = ask((running, finished, failed), "/overview")
    assert (found["jobs-running"], found["jobs-finished"], found["jobs-failed"]) == (1, 1, 1)
    assert (found["taskmanagers"], found["slots-total"]) == (1, 2)
    (manager,) = ask((running, finished), "/taskmanagers")["taskmanagers"]
    assert (manager["slotsNumber"], manager["assignedTasks"]) == (2, 4)
    details = ask((running,), f"/taskmanagers/{manager['id']}")
    assert [(slot["jobId"], slot["assignedTasks"]) for slot in details["allocatedSlots"]] == [(running.id, 2)] * 2


def test_tasks_that_never_ran_are_on_no_task_manager(extreme: JobDescription) -> None:
    (manager,) = ask((extreme,), "/taskmanagers")["taskmanagers"]
    assert manager["id"] == "host_1-3-driver-host-1"
    found = ask((extreme,), f"/jobs/{extreme.id}/vertices/{extreme.vertices[0].job_vertex_id}")["subtasks"]
    assert [one["taskmanager-id"] for one in found] == [manager["id"], "(unassigned)"]
    assert (found[1]["start-time"], found[1]["duration"], found[1]["status-duration"]["RUNNING"]) == (-1, -1, -1)


UNKNOWN = "0" * 32


@pytest.mark.parametrize(
    "path",
    [
        f"/jobs/{UNKNOWN}",
        f"/jobs/{UNKNOWN}/vertices/{SRC}",
        f"/applications/{UNKNOWN}",
        f"/applications/{UNKNOWN}/exceptions",
        "/jobs/ID/vertices/" + UNKNOWN,
        f"/jobs/ID/vertices/{SRC}/subtasks/9",
        f"/jobs/ID/vertices/{SRC}/subtasks/0/attempts/9",
        "/jobs/ID/checkpoints/details/99999",
        "/taskmanagers/nobody",
        "/taskmanagers/nobody/log",
        "/jobmanager/logs/passwd",
    ],
)
def test_what_is_not_there_is_not_found(path: str, running: JobDescription) -> None:
    with pytest.raises(NotFoundError, match="[A-Z]"):
        ask((running,), path.replace("ID", running.id))


def test_no_view_needs_more_than_a_job_has_at_its_beginning(beginning: JobDescription, extreme: JobDescription) -> None:
    """Each view of jobs as a whole answers with JSON that has no NaN."""
    asked = 0
    for job in (beginning, extreme):
        for route in ROUTES:
            if "{" not in route.path.replace("{job}", "").replace("{application}", ""):
                path = route.path.format(job=job.id, application=job.id)
                answer: Any = ask((beginning, extreme), path)
                if isinstance(answer, dict | list):
                    json.dumps(answer, allow_nan=False)
                    asked += 1
    assert asked > 40


def test_the_first_route_that_matches_a_path_is_the_only_one_of_its_kind() -> None:
    for route in ROUTES:
        if "{" not in route.path:
            first = next(other for other in ROUTES if other.match(route.path) is not None)
            assert first is route
