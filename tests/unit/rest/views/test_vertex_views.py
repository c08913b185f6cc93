"""The views of vertices say what subtasks do, one by one and together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flinkish.jobmanager.job.description import JobDescription, RatesDescription
from flinkish.rest.route import BadRequestError, NotFoundError
from flinkish.rest.views.shapes import aggregate, percentile, statistics
from flinkish.runtime.task.stack_samples import SampledStack, StackSamples
from tests.support.described_jobs import NOW_MS, ask, untold_job

SRC, COUNT = "f362c87ffabe89c8a91fa7d0a523ba6c", "b71731f1c0df9c3076c4a455334d0ad6"

#: The metrics that colour the graph of Flink's Web UI.
COLOURS = "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,idleTimeMsPerSecond"


def of_vertex(job: JobDescription, vertex: str, path: str = "", **query: str) -> Any:
    return ask((job,), f"/jobs/{job.id}/vertices/{vertex}{path}", **query)


def test_subtasks_are_shown_with_their_sums(running: JobDescription) -> None:
    found = of_vertex(running, COUNT)
    records = [one["metrics"]["read-records"] for one in found["subtasks"]]
    assert sum(records) == 30 and min(records) > 0
    together = found["aggregated"]["metrics"]["read-records"]
    assert (together["min"], together["max"], together["sum"]) == (min(records), max(records), 30)
    one = found["subtasks"][0]
    assert one["start-time"] == one["start_time"] > 0 > one["end-time"]
    assert one["status-duration"]["RUNNING"] >= 0
    assert of_vertex(running, COUNT, "/subtasks/0") == one
    assert of_vertex(running, COUNT, "/subtasks/0/attempts/0") == one


def test_earlier_attempts_are_shown_on_request(restarted: JobDescription) -> None:
    current = of_vertex(restarted, COUNT, "/subtasks/0")
    before = of_vertex(restarted, COUNT, "/subtasks/0/attempts/0")
    assert (current["attempt"], current["status"], current["end-time"]) == (1, "RUNNING", -1)
    assert before["attempt"] == 0 and before["status"] in ("FAILED", "CANCELED")
    assert before["end-time"] - before["start-time"] == before["duration"]
    assert before["metrics"]["read-records"] > 0
    states = {of_vertex(restarted, COUNT, f"/subtasks/{number}/attempts/0")["status"] for number in (0, 1)}
    assert states == {"FAILED", "CANCELED"}


def test_task_managers_of_a_vertex_have_its_subtasks(running: JobDescription) -> None:
    (manager,) = of_vertex(running, COUNT, "/taskmanagers")["taskmanagers"]
    assert (manager["status"], manager["status-counts"]["RUNNING"]) == ("RUNNING", 2)
    assert manager["metrics"]["read-records"] == 30
    assert manager["endpoint"] == running.driver.host


def test_times_of_subtasks_have_all_states(running: JobDescription) -> None:
    one = of_vertex(running, SRC, "/subtasktimes")["subtasks"][0]
    assert one["timestamps"]["CREATED"] <= one["timestamps"]["RUNNING"]
    assert (one["timestamps"]["FAILED"], len(one["timestamps"])) == (0, 10)


@pytest.mark.parametrize(
    ("held_ms", "level"), [((0.0, 100.0), "ok"), ((0.0, 100.1), "low"), ((20.0, 500.0), "low"), ((500.1, 0.0), "high")]
)
def test_a_vertex_has_the_back_pressure_of_the_subtask_with_most(
    running: JobDescription, held_ms: tuple[float, float], level: str
) -> None:
    vertex = running.vertices[0]
    subtasks = tuple(
        replace(one, current=replace(one.current, rates=RatesDescription(busy_ms=300, backpressured_ms=ms, idle_ms=25)))
        for one, ms in zip(vertex.subtasks, held_ms, strict=True)
    )
    job = replace(running, vertices=(replace(vertex, subtasks=subtasks), *running.vertices[1:]))
    found = of_vertex(job, SRC, "/backpressure")
    assert (found["backpressureLevel"], found["backpressure-level"], found["status"]) == (level, level, "ok")
    assert [(one["ratio"], one["busyRatio"], one["idleRatio"]) for one in found["subtasks"]] == [
        (ms / 1000, 0.3, 0.025) for ms in held_ms
    ]
    shown = {one["id"]: one["max"] for one in of_vertex(job, SRC, "/subtasks/metrics", get=COLOURS)}
    assert [shown[name] for name in COLOURS.split(",")] == [300.0, max(held_ms), 25.0]


def test_a_task_that_has_told_nothing_is_neither_idle_nor_without_records(running: JobDescription) -> None:
    untold = untold_job()
    source = untold.vertices[0].job_vertex_id
    found = of_vertex(untold, source, "/backpressure")
    assert (found["status"], found["backpressureLevel"], found["subtasks"]) == ("deprecated", None, None)
    told = running.vertices[0].subtasks[:1]
    both = replace(untold.vertices[0], subtasks=(*told, *untold.vertices[0].subtasks))
    found = of_vertex(replace(untold, vertices=(both,)), source, "/backpressure")
    assert [one["subtask"] for one in found["subtasks"]] == [0], "those that are known"
    metrics = of_vertex(untold, source, "/subtasks/1")["metrics"]
    assert (metrics["read-records"], metrics["read-records-complete"]) == (0, False)
    wanted = "numRecordsIn,idleTimeMsPerSecond,stateSize,isBackPressured"
    values = of_vertex(untold, source, "/subtasks/1/metrics", get=wanted)
    assert [one["value"] for one in values] == ["NaN"] * 4
    assert of_vertex(untold, source, "/subtasks/metrics", get=wanted) == []


def test_the_time_of_a_subtask_is_work_back_pressure_and_idleness(running: JobDescription) -> None:
    vertex = running.vertices[0]
    one = replace(vertex.subtasks[0].current, busy_ms=300.0, backpressured_ms=500.0, idle_ms=200.0)
    subtasks = (replace(vertex.subtasks[0], current=one), *vertex.subtasks[1:])
    job = replace(running, vertices=(replace(vertex, subtasks=subtasks), *running.vertices[1:]))
    found = of_vertex(job, SRC, "/subtasks/0")["metrics"]
    times = [found[f"accumulated-{name}-time"] for name in ("busy", "backpressured", "idle")]
    assert times == [300.0, 500, 200]


def test_a_flame_graph_is_switched_off(running: JobDescription) -> None:
    assert of_vertex(running, SRC, "/flamegraph", type="on_cpu") == {"endTimestamp": -2}


def flame_graph(job: JobDescription, samples: StackSamples | None, **query: str) -> Any:
    return ask((job,), f"/jobs/{job.id}/vertices/{SRC}/flamegraph", NOW_MS, samples, **query)


def stack(subtask: int, on_cpu: bool | None, count: int, *frames: str, vertex: int = 0) -> SampledStack:
    return SampledStack(vertex, subtask, on_cpu, count, frames)


STACKS = StackSamples(
    "ab",
    1_700_000_000_000,
    (
        stack(0, True, 3, "main:1", "map:2"),
        stack(0, False, 2, "main:1", "sleep:3"),
        stack(1, True, 4, "main:1", "map:2", "parse:4"),
        stack(1, None, 1, "main:5"),
        stack(0, True, 9, "main:1", vertex=1),
    ),
)


def node(name: str, value: int, *children: Any) -> Any:
    return {"name": name, "value": value, "children": list(children)}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            {},
            node(
                "root",
                10,
                node("main:1", 9, node("map:2", 7, node("parse:4", 4)), node("sleep:3", 2)),
                node("main:5", 1),
            ),
        ),
        ({"type": "on_cpu"}, node("root", 7, node("main:1", 7, node("map:2", 7, node("parse:4", 4))))),
        ({"type": "OFF_CPU"}, node("root", 2, node("main:1", 2, node("sleep:3", 2)))),
        (
            {"subtaskindex": "1", "type": "on_cpu"},
            node("root", 4, node("main:1", 4, node("map:2", 4, node("parse:4", 4)))),
        ),
        ({"subtaskindex": "1", "type": "off_cpu"}, node("root", 0)),
    ],
)
def test_a_flame_graph_has_the_stacks_of_a_vertex(
    running: JobDescription, query: dict[str, str], expected: Any
) -> None:
    assert flame_graph(running, STACKS, **query) == {"endTimestamp": STACKS.end_ms, "data": expected}


def test_flink_s_numbers_say_why_there_is_no_flame_graph(running: JobDescription, finished: JobDescription) -> None:
    assert flame_graph(running, StackSamples("", 0, ())) == {"endTimestamp": -3}
    assert flame_graph(finished, STACKS) == {"endTimestamp": -1}


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ({"type": "half"}, BadRequestError, "'half' of a flame graph is none of full, on_cpu, off_cpu"),
        ({"subtaskindex": "2"}, NotFoundError, "Invalid subtask index 2"),
        ({"subtaskindex": "x"}, NotFoundError, "Invalid subtask index x"),
    ],
)
def test_a_flame_graph_of_what_there_is_not_is_refused(
    running: JobDescription, query: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        flame_graph(running, STACKS, **query)


def test_accumulators_are_those_of_subtasks_and_their_sums(finished: JobDescription) -> None:
    found = of_vertex(finished, COUNT, "/subtasks/accumulators")["subtasks"]
    seen = [{one["name"]: one["value"] for one in subtask["user-accumulators"]}["seen"] for subtask in found]
    assert sum(map(int, seen)) == 60 and "60" not in seen
    assert of_vertex(finished, COUNT, "/accumulators")["user-accumulators"] == [
        {"name": "seen", "type": "LongCounter", "value": "60"}
    ]
    attempt = of_vertex(finished, COUNT, "/subtasks/1/attempts/0/accumulators")
    assert attempt["user-accumulators"] == found[1]["user-accumulators"]
    assert attempt["id"] == f"{finished.id}_{COUNT}_1_0"


def test_accumulators_of_an_attempt_that_has_failed_do_not_count(restarted: JobDescription) -> None:
    found = {one["name"]: one["value"] for one in of_vertex(restarted, COUNT, "/accumulators")["user-accumulators"]}
    assert found["seen"] == "20", "two epochs since the restart, and 20 records before it"
    job = {
        one["name"]: one["value"]
        for one in ask((restarted,), f"/jobs/{restarted.id}/accumulators")["user-task-accumulators"]
    }
    assert job["seen"] == "40"


@pytest.mark.parametrize(
    ("percent", "expected"), [(25, 2.75), (50, 7.0), (75, 25.25), (90, 94.1), (95, 100.0), (99, 100.0), (99.9, 100.0)]
)
def test_percentiles_are_flinks(percent: float, expected: float) -> None:
    """The expected ones are those of DescriptiveStatisticsHistogram of Flink 2.3."""
    assert percentile([1, 2, 3, 5, 7, 7, 9, 20, 41, 100], percent) == pytest.approx(expected)


def test_statistics_of_nothing_are_harmless() -> None:
    assert set(aggregate([]).values()) == {0}
    assert statistics([]) == {
        "min": 0,
        "max": 0,
        "avg": 0,
        **dict.fromkeys(("p50", "p90", "p95", "p99", "p999"), "NaN"),
    }
    assert statistics([3]) == {"min": 3, "max": 3, "avg": 3, **dict.fromkeys(("p50", "p90", "p95", "p99", "p999"), 3.0)}
