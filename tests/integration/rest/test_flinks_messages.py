"""Flink 2.3's own classes read the answer of each view, as strictly as its client does, and find all fields in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.route import Text
from flinkish.rest.views import ROUTES
from flinkish.runtime.task.stack_samples import SampledStack, StackSamples
from tests.support import described_jobs as jobs
from tests.support.flink_jars import FLINK
from tests.support.ivy import JarsNotResolved, java_executable, resolve_jars

#: Views that have no answer of JSON in Flink, or that Flink does not have.
NO_MESSAGES = {
    *("/metrics", "/jobmanager/log", "/jobmanager/stdout", "/jobmanager/logs/:file"),
    *("/taskmanagers/:taskmanagerid/log", "/taskmanagers/:taskmanagerid/stdout"),
    "/taskmanagers/:taskmanagerid/logs/:file",
    # of our own page
    "/jobs/:jobid/description",
}

#: Flink's GETs that are no views: of operations, and of what flinkish has nothing of.
OTHERS = {
    *("/jobs/:jobid/savepoints/:triggerid", "/jobs/:jobid/checkpoints/:triggerid", "/savepoint-disposal/:triggerid"),
    *("/jobs/:jobid/rescaling/:triggerid", "/jobs/:jobid/resource-requirements", "/datasets"),
    *("/datasets/delete/:triggerid", "/jobmanager/profiler", "/taskmanagers/:taskmanagerid/profiler"),
    *("/jobs/:jobid/jobmanager/log-url", "/jobs/:jobid/taskmanagers/:taskmanagerid/log-url"),
    "/jobs/:jobid/jobmanager/environment",
}

#: Names of parameters in Flink's routes.
_NAMES = {
    "job": "jobid",
    "application": "applicationid",
    "vertex": "vertexid",
    "subtask": "subtaskindex",
    "checkpoint": "checkpointid",
    "taskmanager": "taskmanagerid",
}

#: What Flink writes twice, and reads once.
_ALIASES = {"backpressure-level"}

#: What Flink reads as a Java object, and writes in other bytes.
_OBJECTS = {"serialized-throwable"}


#: What the flame graphs of all jobs are made of.
STACKS = StackSamples(
    "ab", 1_700_000_000_000, tuple(SampledStack(vertex, 0, True, 3, ("main:1", "map:2")) for vertex in range(2))
)


def template(path: str) -> str:
    """The path of a route as Flink writes it."""
    for ours, flinks in _NAMES.items():
        path = path.replace(f"{{{ours}}}", f":{flinks}")
    return path.replace("{", ":").replace("}", "")


def paths_of(job: JobDescription, all_jobs: tuple[JobDescription, ...]) -> Iterator[tuple[str, str]]:
    """(route of Flink, path) of all answers about a job, and about all jobs."""
    managers = jobs.ask(all_jobs, "/taskmanagers")["taskmanagers"]
    names = {
        "job": [job.id],
        "application": [job.id],
        "vertex": [vertex.job_vertex_id for vertex in job.vertices],
        "subtask": ["0", "1"] if job.vertices else [],
        "attempt": sorted({str(one.current.attempt) for vertex in job.vertices for one in vertex.subtasks}),
        "checkpoint": sorted({str(one.id) for one in job.checkpoints.history}),
        "taskmanager": [manager["id"] for manager in managers],
        "file": ["flinkish.log"],
    }
    for route in ROUTES:
        paths = [route.path]
        for name, values in names.items():
            if f"{{{name}}}" in route.path:
                paths = [path.replace(f"{{{name}}}", value) for path in paths for value in values]
        yield from ((template(route.path), path) for path in paths)


def queries_of(path: str) -> list[dict[str, str]]:
    """What the views are asked for behind a path."""
    if not path.endswith("/metrics"):
        return [{}]
    return [{}, {"get": "numRecordsIn,0.numRecordsIn,0.Double_<it>.numbers.seen,uptime,numRestarts,numTasks"}]


@pytest.fixture(scope="module")
def all_jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[JobDescription, ...]:
    return (
        jobs.running_job(),
        jobs.restarted_job(),
        jobs.checkpointed_job(tmp_path_factory.mktemp("checkpointed")),
        jobs.failed_job(),
        jobs.extreme_job(),
        jobs.beginning_job(),
        jobs.untold_job(),
    )


@pytest.fixture(scope="module")
def messages(all_jobs: tuple[JobDescription, ...], tmp_path_factory: pytest.TempPathFactory) -> Messages:
    folder = tmp_path_factory.mktemp("messages")
    return Messages(all_jobs, folder)


class Messages:
    """The answers of all views, read and written by Flink's classes."""

    def __init__(self, all_jobs: tuple[JobDescription, ...], folder: Path) -> None:
        #: (path with its query, file of the answer)
        self.asked: list[tuple[str, Path]] = []
        lines, seen = [], set()
        for job in all_jobs:
            for route, path in paths_of(job, all_jobs):
                for query in queries_of(path):
                    key = f"{path} {query}"
                    if route in NO_MESSAGES or key in seen:
                        continue
                    seen.add(key)
                    try:
                        answer = jobs.ask(all_jobs, path, jobs.NOW_MS, STACKS, **query)
                    except Exception as error:
                        if type(error).__name__ != "NotFoundError":
                            raise
                        continue
                    assert not isinstance(answer, Text), path
                    file = folder / f"{len(self.asked)}.json"
                    file.write_text(json.dumps(answer, allow_nan=False))
                    self.asked.append((key, file))
                    lines.append(f"{route}\t{file}")
        (folder / "answers").write_text("\n".join(lines))
        self.routes = _java(folder / "answers")


def _java(answers: Path) -> set[str]:
    try:
        jars = resolve_jars(FLINK)
    except JarsNotResolved as error:
        pytest.skip(f"Flink's classes cannot be had: {error}")
    of_messages = next(str(jar) for jar in jars if jar.name.startswith("flink-runtime-"))
    program = str(Path(__file__).with_name("FlinkMessages.java"))
    class_path = ":".join(map(str, jars))
    command = [java_executable(), "-XX:TieredStopAtLevel=1", "-cp", class_path, program, of_messages, str(answers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def differences(ours: Any, again: Any, place: str = "") -> Iterator[str]:
    """What Flink has read of an answer in another way than it was meant, and fields that it misses or does not know."""
    if isinstance(ours, dict) and isinstance(again, dict):
        for name in sorted(ours.keys() | again.keys()):
            if name not in again:
                # Flink leaves out what is null, and an alias
                if name not in _ALIASES and ours[name] is not None:
                    yield f"{place}.{name}: Flink does not know it"
            elif name not in ours:
                if again[name] is not None:
                    yield f"{place}.{name}: it is missing, Flink takes {again[name]!r}"
            elif name not in _OBJECTS:
                yield from differences(ours[name], again[name], f"{place}.{name}")
    elif isinstance(ours, list) and isinstance(again, list) and len(ours) == len(again):
        for number, (one, other) in enumerate(zip(ours, again, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif ours != again and not _is_same_number(ours, again):
        yield f"{place}: {ours!r} is read as {again!r}"


def _is_same_number(ours: Any, again: Any) -> bool:
    numbers = isinstance(ours, int | float) and isinstance(again, int | float)
    return numbers and bool(again == pytest.approx(ours, rel=1e-12))


def test_flinks_classes_read_all_answers_and_miss_nothing(messages: Messages) -> None:
    wrong = {}
    for key, file in messages.asked:
        error = file.with_name(file.name + ".error")
        if error.exists():
            wrong[key] = [error.read_text()[:500]]
            continue
        again = json.loads(file.with_name(file.name + ".again").read_text())
        found = list(differences(json.loads(file.read_text()), again))
        if found:
            wrong[key] = found[:5]
    assert not wrong, json.dumps(wrong, indent=1)
    assert len(messages.asked) > 300


def test_each_route_of_flink_has_a_view_or_a_reason_for_none(messages: Messages) -> None:
    views = {template(route.path) for route in ROUTES}
    rescales = {route for route in messages.routes if "/rescales/" in route}
    assert messages.routes - views - rescales == OTHERS
    assert views - messages.routes == NO_MESSAGES
