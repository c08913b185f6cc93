"""The views of metrics list names, give the values that are asked for, and aggregate them; so does the page for
Prometheus."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.route import BadRequestError, Text
from flinkish.session.metrics import merged
from tests.support.described_jobs import ask, wide_job

SRC, COUNT = "f362c87ffabe89c8a91fa7d0a523ba6c", "b71731f1c0df9c3076c4a455334d0ad6"


def names(answer: list[dict[str, Any]]) -> set[str]:
    return {one["id"] for one in answer}


def values(answer: list[dict[str, Any]]) -> dict[str, str]:
    return {one["id"]: one["value"] for one in answer}


def test_a_job_has_flinks_metrics(restarted: JobDescription) -> None:
    path = f"/jobs/{restarted.id}/metrics"
    assert {"numRestarts", "uptime", "lastCheckpointDuration", "runningTime"} <= names(ask((restarted,), path))
    found = values(
        ask((restarted,), path, get="numRestarts,lastCompletedCheckpointId,nothing,lastCheckpointExternalPath")
    )
    assert found == {"numRestarts": "1", "lastCompletedCheckpointId": "-1", "lastCheckpointExternalPath": "n/a"}
    assert int(values(ask((restarted,), path, get="runningTime"))["runningTime"]) > 0


def test_the_driver_and_a_task_manager_have_metrics(running: JobDescription) -> None:
    assert values(ask((running,), "/jobmanager/metrics", get="numRunningJobs,taskSlotsTotal")) == {
        "numRunningJobs": "1",
        "taskSlotsTotal": "2",
    }
    name = ask((running,), "/taskmanagers")["taskmanagers"][0]["id"]
    assert values(ask((running,), f"/taskmanagers/{name}/metrics", get="numTasks")) == {"numTasks": "4"}
    assert ask((running,), "/taskmanagers/metrics", get="numTasks", agg="sum") == [{"id": "numTasks", "sum": 4.0}]


def test_metrics_of_a_vertex_begin_with_the_subtask_and_those_of_functions_with_the_operator(
    running: JobDescription,
) -> None:
    path = f"/jobs/{running.id}/vertices/{SRC}/metrics"
    seen = "0.Double_<it>.numbers.seen"
    assert {seen, "1.numRecordsOut", "0.busyTimeMsPerSecond", "0.Source__events.numRecordsIn"} <= names(
        ask((running,), path)
    )
    assert values(ask((running,), path, get=f"{seen},0.numRecordsOut,9.numRecordsIn,numRecordsIn")) == {
        seen: "30",
        "0.numRecordsOut": "30",
    }
    of_subtask = ask((running,), f"/jobs/{running.id}/vertices/{SRC}/subtasks/0/metrics", get="numRecordsOut")
    assert of_subtask == [{"id": "numRecordsOut", "value": "30"}]
    assert ask((running,), f"/jobs/{running.id}/vertices/{SRC}/jm-operator-metrics") == []


def test_watermarks_are_there_behind_sources_alone(extreme: JobDescription, running: JobDescription) -> None:
    assert ask((running,), f"/jobs/{running.id}/vertices/{SRC}/watermarks") == []
    assert ask((running,), f"/jobs/{running.id}/vertices/{COUNT}/watermarks") == [
        {"id": "0.currentInputWatermark", "value": "-9223372036854775808"},
        {"id": "1.currentInputWatermark", "value": "-9223372036854775808"},
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {"min": 0.0, "max": 3_000.0, "avg": 1_500.0, "sum": 6_000.0, "skew": 200 / 3}),
        ({"agg": "min,max"}, {"min": 0.0, "max": 3_000.0}),
        ({"subtasks": "1"}, {"min": 1_000.0, "max": 1_000.0, "avg": 1_000.0, "sum": 1_000.0, "skew": 0.0}),
        ({"subtasks": "0,2-3", "agg": "sum"}, {"sum": 5_000.0}),
        ({"subtasks": "2-99999999", "agg": "sum"}, {"sum": 5_000.0}),
    ],
)
def test_metrics_of_subtasks_are_aggregated(query: dict[str, str], expected: dict[str, float]) -> None:
    job = wide_job(4, vertices=1)
    path = f"/jobs/{job.id}/vertices/{job.vertices[0].job_vertex_id}/subtasks/metrics"
    (found,) = ask((job,), path, get="numRecordsIn,isBackPressured,nothing", **query)
    assert found == pytest.approx({"id": "numRecordsIn", **expected})
    assert {"numRecordsIn", "op_0.hits"} <= names(ask((job,), path))


@pytest.mark.parametrize("query", [{"agg": "median"}, {"subtasks": "x"}, {"subtasks": "1-"}, {"subtasks": "-1"}])
def test_what_cannot_be_aggregated_is_refused(query: dict[str, str], running: JobDescription) -> None:
    with pytest.raises(BadRequestError, match="is n"):
        ask((running,), f"/jobs/{running.id}/vertices/{SRC}/subtasks/metrics", get="numRecordsIn", **query)


def test_metrics_of_jobs_are_aggregated(running: JobDescription, restarted: JobDescription) -> None:
    jobs = running, restarted
    assert ask(jobs, "/jobs/metrics", get="numRestarts", agg="max,avg") == [
        {"id": "numRestarts", "max": 1.0, "avg": 0.5}
    ]
    assert ask(jobs, "/jobs/metrics", get="numRestarts", agg="max", jobs=running.id) == [
        {"id": "numRestarts", "max": 0.0}
    ]
    assert "uptime" in names(ask(jobs, "/jobs/metrics"))


def test_values_that_are_no_numbers_have_javas_words(extreme: JobDescription) -> None:
    path = f"/jobs/{extreme.id}/vertices/{extreme.vertices[0].job_vertex_id}"
    operator = 'clicks_<b>"&\\_\n\u2028_ü_😀'
    wanted = ",".join(f"0.{one}" for one in (".c", ".nan", f"{operator}.x", f"{operator}.numRecordsIn"))
    found = values(ask((extreme,), f"{path}/metrics", get=wanted))
    assert (found["0..c"], found["0..nan"]) == ("Infinity", "NaN")
    assert found[f"0.{operator}.numRecordsIn"] == str(2**62), "a function's metric of that name is not shown"
    assert not any("stranger" in name for name in names(ask((extreme,), f"{path}/metrics")))
    assert ask((extreme,), f"{path}/subtasks/metrics", get=".c,.nan") == []


# ---------------------------------------------------------------------- Prometheus

_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]+="[^"\\\n]*",?)+)\} (\S+)')


def scraped(*jobs: JobDescription) -> dict[tuple[str, str], float]:
    """(name, labels) -> value; checks that each line is one of the format, and that samples are not there twice."""
    answer = ask(jobs, "/metrics")
    assert isinstance(answer, Text) and answer.content_type.startswith("text/plain; version=0.0.4")
    found: dict[tuple[str, str], float] = {}
    families: list[str] = []
    for line in answer.text.splitlines():
        if line.startswith("# HELP "):
            families.append(line.split()[2])
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {families[-1]} gauge"
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert sample[1] == families[-1], "the samples of a name stand together"
            assert (sample[1], sample[2]) not in found, line
            found[sample[1], sample[2]] = float(sample[3])
    assert len(families) == len(set(families))
    return found


def test_prometheus_gets_the_names_and_labels_of_flinks_reporter(running: JobDescription) -> None:
    found = scraped(running)
    job = f'job_id="{running.id}",job_name="clicks___more"'
    host = re.sub("[^a-zA-Z0-9:_]", "_", running.driver.host)
    task = (
        f'{job},task_id="{SRC}",task_name="Source:_events____Double__it_",subtask_index="0",host="{host}",'
        f'tm_id="{host}_driver_{running.driver.pid}"'
    )
    assert found["flink_taskmanager_job_task_numRecordsOut", task] == 30
    (seen,) = (
        (labels, value) for (name, labels), value in found.items() if name.endswith("operator_numbers_seen") and value
    )
    assert 'operator_name="Double__it_"' in seen[0] and seen[0].startswith(task)
    (restarts,) = (value for (name, _), value in found.items() if name == "flink_jobmanager_job_numRestarts")
    assert restarts == 0
    assert found["flink_jobmanager_numRunningJobs", 'host="driver_host"'] == 1
    assert any(name == "flink_taskmanager_job_task_operator_numRecordsIn" for name, _ in found)


def test_prometheus_gets_each_sample_once_whatever_names_there_are(extreme: JobDescription) -> None:
    found = scraped(extreme)
    by_name = {name: value for (name, _), value in found.items()}
    assert by_name["flink_taskmanager_job_task_operator_c"] == math.inf
    assert math.isnan(by_name["flink_taskmanager_job_task_operator_nan"])
    assert by_name["flink_taskmanager_job_task_operator_x_y"] == 1, "the second of two names that are one there"
    assert "flink_taskmanager_job_task_operator_x" not in by_name, "no double holds it"


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\n"], ids=ascii)
def test_no_name_of_a_metric_is_another_line(end: str, extreme: JobDescription) -> None:
    vertex = extreme.vertices[0]
    forged = f'n{end}flink_jobmanager_job_uptime{{job_id="other"}} 666{end}\\'
    execution = replace(vertex.subtasks[0].current, metrics={f"a.{forged}": 1})
    subtask = replace(vertex.subtasks[0], current=execution)
    job = replace(extreme, vertices=(replace(vertex, subtasks=(subtask,)),))
    assert scraped(job).keys() > {name for name in scraped(job) if "_666_" in name[0]} != set()
    text = ask((job,), "/metrics").text
    (told,) = [line for line in text.split("\n") if "666" in line and line.startswith("# HELP")]
    assert set(re.findall(r"\\+", told)) == {"\\\\"}, "the format knows two backslashes, and no other sequence"
    # the scrape of a session is made of texts of drivers, whatever those escape
    raw = f'# HELP flink_n {forged}\n# TYPE flink_n gauge\nflink_n{{job_id="mine"}} 1.0\n'
    for scrape in (text, raw.replace("\n", " ", 1) if end == "\n" else raw):
        assert not [
            line
            for line in merged([scrape]).split("\n")
            if line.startswith('flink_jobmanager_job_uptime{job_id="other"')
        ]


def test_prometheus_gets_nothing_of_jobs_that_have_ended(finished: JobDescription) -> None:
    assert {name for name, _ in scraped(finished) if "_job_" in name} == set()


def test_the_board_for_grafana_names_metrics_and_labels_that_there_are(extreme: JobDescription) -> None:
    """The board is ``docs/grafana/flinkish.json``."""
    board = json.loads((Path(__file__).parents[4] / "docs/grafana/flinkish.json").read_text())
    lines = ask((extreme,), "/metrics").text.splitlines()
    known = {line.partition("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    labels = {name for line in lines for name in re.findall(r'(\w+)="', line)}
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(asked) > 14
    for expression in asked:
        assert set(re.findall(r"flink_\w+", expression)) <= known, expression
    legends = [target["legendFormat"] for panel in board["panels"] for target in panel["targets"]]
    assert set(re.findall(r"\{\{(\w+)\}\}", " ".join(legends))) | {"job_name"} <= labels
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
