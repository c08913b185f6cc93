"""Every figure of every view has a row that says of what it is, since when, who has told it, and what stands there when
nobody has: and that is what stands there, before the first report, in a long epoch, and when a worker has died.

The rows are in ``tests/support/figures.py``. A figure without a row fails, and so does a row without a figure.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from datetime import timezone
from importlib import resources
from typing import Any, get_args, get_type_hints

import pytest

from flinkish.cli import described, listed
from flinkish.cli.targets import Job
from flinkish.common.memory import MemoryConfiguration
from flinkish.errors import RetryableError
from flinkish.jobmanager.execution_graph import ExecutionGraph
from flinkish.jobmanager.history import TABLES, columns_of
from flinkish.jobmanager.job.description import (
    CheckpointDescription,
    JobDescription,
    OperatorDescription,
    VertexDescription,
)
from flinkish.jobmanager.job.resources import near_limits
from flinkish.jobmanager.job.task_managers import TaskManagerEvent
from flinkish.jobmanager.job_record import describe_running_epoch
from flinkish.jobmanager.notebook import job_html
from flinkish.jobmanager.progress import ProgressLine
from flinkish.jobmanager.task_managers import TaskManagers
from flinkish.rest.route import Asked, NotFoundError
from flinkish.rest.views import ROUTES
from flinkish.rest.views.metrics import job_metrics, task_metrics
from flinkish.rest.views.shapes import finite
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.task.progress import EpochProgress, TaskProgress
from tests.support.described_jobs import NOW_MS, FixedJobs, extreme_job, managed_job
from tests.support.figures import KNOWN, MINUTE, ROWS, Row
from tests.support.job_descriptors import job_of_levels
from tests.support.rest_jobs import job

MINUTE_MS = 60_000


# ---------------------------------------------------------------------- the figures of the views


def of_type(kind: type, seen: set[type]) -> Iterator[str]:
    """The names of the fields of a description, and of those below it, that hold numbers."""
    if kind in seen:
        return
    seen.add(kind)
    for name, hint in get_type_hints(kind).items():
        found, parts = False, [hint]
        while parts:
            part = parts.pop()
            if is_dataclass(part):
                yield from of_type(part, seen)  # type: ignore[arg-type]
            found |= part in (int, float)
            parts += get_args(part)
        if found and name in {one.name for one in fields(kind)}:
            yield f"{kind.__name__}.{name}"


def of_value(value: Any) -> Iterator[tuple[str, Any]]:
    """(figure, its value) of a description."""
    if is_dataclass(value):
        for one in fields(value):
            inner = getattr(value, one.name)
            yield f"{type(value).__name__}.{one.name}", inner
            yield from of_value(inner)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from of_value(inner)
    elif isinstance(value, dict):
        yield from of_value(tuple(value.values()))


_STATES = "CREATED|SCHEDULED|DEPLOYING|INITIALIZING|RUNNING|FINISHED|FAILING|FAILED|CANCELING|CANCELLING|CANCELED"
_KEYS = (
    (re.compile(rf"\.({_STATES}|RECONCILING|RESTARTING|SUSPENDED)\b", re.I), ".STATE"),
    (re.compile(r"\.(min|max|avg|sum|median|p\d+)$"), ".STATISTIC"),
    (re.compile(r"\.[0-9a-f]{32}\."), ".VERTEX."),
)


def of_json(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of what is a number, or stands for one, in an answer."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from of_json(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from of_json(inner, path)
    elif isinstance(value, (int, float)) or value in (None, "NaN"):
        for pattern, name in _KEYS:
            path = pattern.sub(name, path)
        yield path, value


def of_rest(job: JobDescription) -> Iterator[tuple[str, Any]]:
    vertex = job.vertices[0]
    names = {"job": job.id, "application": job.id, "vertex": vertex.job_vertex_id, "subtask": "0", "checkpoint": "1"}
    names |= {"attempt": str(vertex.subtasks[0].current.attempt), "file": "flinkish.log"}
    names["taskmanager"] = job.task_managers[0].id if job.task_managers else ""
    for route in ROUTES:
        asked = {name: names[name] for name in re.findall(r"\{(\w+)\}", route.path)}
        if route.method == "GET" and route.path not in ("/metrics", "/jobs/{job}/description"):
            with suppress(NotFoundError):
                answer = finite(route.answer(Asked(FixedJobs((job,)), NOW_MS, asked, {})))
                yield from of_json(answer, route.path)


def of_metrics(job: JobDescription) -> Iterator[tuple[str, Any]]:
    asked = Asked(FixedJobs((job,)), NOW_MS, {}, {})
    (scrape,) = [route.answer(asked).text for route in ROUTES if route.path == "/metrics"]
    yield from ((f"job/{name}", value) for name, value in job_metrics(job, NOW_MS).items())
    for vertex in job.vertices:
        for subtask in vertex.subtasks:
            yield from ((f"task/{name}", value) for name, value in task_metrics(vertex, subtask.current).items())
    for line in scrape.splitlines():
        if not line.startswith("#"):
            name, value = re.fullmatch(r"flink_([^{]*)\{.*\} (\S+)", line).groups()  # type: ignore[union-attr]
            yield f"flink {name}", float(value)


class Tables:
    """What the command line shows as tables: (head of the table, head of the column, cell)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._found: list[tuple[str, Any]] = []
        for module in (described, listed):
            monkeypatch.setattr(module, "table", self._table)

    def _table(self, heads: Any, rows: Any, indent: str = "") -> list[str]:
        for row in rows:
            self._found += [(f"{heads[0]}/{head.strip()}", cell) for head, cell in zip(heads, row, strict=True)]
        return ["a table"]

    def of(self, job: JobDescription) -> Iterator[tuple[str, Any]]:
        self._found.clear()
        as_json = json.loads(json.dumps(finite(job)))
        text = described.job_text(as_json, NOW_MS, timezone.utc)
        yield from (match.groups() for match in re.finditer(r"^  (\w[\w ]{0,10}?) {2,}(.+)$", text, re.M))  # type: ignore[misc]
        listed.live_table([listed.Listed(Job(job.id, job.name, job.status), as_json)], NOW_MS, timezone.utc)
        yield from self._found


def of_page() -> Iterator[str]:
    """What the page names: columns of its tables, figures of its head."""
    script = resources.files("flinkish.rest").joinpath("page", "flinkish.js").read_text()
    for function, body in re.findall(r"^function show(\w+)\(.*?\{\n(.*?)^\}", script, re.M | re.S):
        titles = re.findall(r'\["([^"]+)", \(', body) + re.findall(
            r'^    \[(?:number|watermark)\(.*, "([\w ]+)"\],$', body, re.M
        )
        yield from (f"{function}/{title}" for title in titles)


def of_progress_line() -> Iterator[str]:
    """What stands in the line of progress, of an epoch that runs and of one that is done."""
    stream, clock = io.StringIO(), ManualClock(NOW_MS)
    taken = CheckpointDescription(1, 1, "COMPLETED", NOW_MS, 5)
    line = ProgressLine(JOB, stream, clock, renewing=False, checkpoints=lambda: (taken,))
    line.attempt_failed(RetryableError("x"), 1)
    line.epoch_running(EpochProgress(0, 1_000, 5, 5, None, ()))
    clock.advance(MINUTE_MS)
    tasks = (TaskReport(0, 0, backlog=7),)
    line.epoch_done(replace(EpochReport(0, 5, 5, 0, NOW_MS, False, tasks=tasks), duration_ms=1_000))
    for found in re.findall(r"(?:^job: |\| )(.*?)(?= \||$)", stream.getvalue(), re.M):
        yield re.match(r"[a-z]*", found.partition(" ")[2] if "/s" in found else found)[0] or "rate"  # type: ignore[index]


def figures(job: JobDescription, tables: Tables) -> Iterator[tuple[str, str, Any]]:
    """(view, figure, value) of all views that have values."""
    for view, found in (
        ("description", of_value(job)),
        ("rest", of_rest(job)),
        ("metrics", of_metrics(job)),
        ("text", tables.of(job)),
        ("notebook", re.findall(r"<tr><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td></tr>", job_html(job), re.S)),
    ):
        yield from ((view, name.replace(" ", "."), value) for name, value in found)


class Situation:
    """A job of two vertices with two subtasks each, of which the driver has heard nothing."""

    def __init__(self) -> None:
        self.clock, self.events = ManualClock(NOW_MS - 20 * MINUTE_MS), list[TaskManagerEvent]()
        self.graph = ExecutionGraph(JOB, self.clock)
        self.managers = TaskManagers(JOB, self.events.append, clock=self.clock)
        self.running: EpochProgress | None = None
        self.graph.attempt_started(0)
        self.graph.query_started()
        self.graph.epoch_begun()

    def waits(self, minutes: int) -> Situation:
        """Time passes in which nobody says anything."""
        self.clock.advance(minutes * MINUTE_MS)
        return self

    def described(self) -> JobDescription:
        self.managers.look()
        running = None if self.running is None else describe_running_epoch(self.running)
        shown = {"vertices": self.graph.describe(), "task_managers": self.managers.describe(), "running_epoch": running}
        return replace(job(), **shown)

    def runs(self, minutes: int, *subtasks: int) -> Situation:
        """The epoch goes on, and these subtasks of the second vertex say each second that they work."""
        for second in range(60 * minutes):
            self.clock.advance(1_000)
            tasks = (TaskProgress(1, one, second, busy_ms=1_000.0 * second, place=place(one)) for one in subtasks)
            self.running = EpochProgress(0, 1_000 * second, second, 0, None, tuple(tasks))
            self.graph.epoch_running(self.running)
            self.managers.epoch_running(self.running)
        return self

    def reports(self, epoch: int, pids: tuple[int, int], rss: int) -> Situation:
        """An epoch of a second is done, whose subtasks have run in these processes."""
        self.clock.advance(1_000)
        given: dict[str, Any] = {"process": {"rss": rss}, "work_ms": 500.0, "state_bytes": 7}
        tasks = tuple(TaskReport(1, one, 3, 3, place=place(one, pids[one]), **given) for one in (0, 1))
        report = replace(EpochReport(epoch, 0, 0, 0, None, False, tasks=tasks), duration_ms=1_000)
        self.graph.epoch_done(report)
        self.managers.epoch_done(report)
        self.managers.look()
        self.graph.epoch_begun()
        return self


JOB = job_of_levels({0: (), 1: (0,)})


def place(subtask: int, pid: int = 0) -> TaskPlace:
    return TaskPlace("worker-host", "0", 1, subtask, 0, subtask, pid or 40 + subtask)


def only(described_job: JobDescription, *subtasks: int) -> JobDescription:
    """The job as if it had no other subtasks."""

    def of(vertex: VertexDescription) -> VertexDescription:
        current = tuple(vertex.subtasks[one] for one in subtasks)
        return replace(vertex, subtasks=current, running_records_in=0, running_records_out=0)

    vertices = tuple(map(of, described_job.vertices))
    return replace(described_job, vertices=vertices, running_epoch=None, task_managers=())


def samples() -> Iterator[JobDescription]:
    """Jobs that have all figures together."""
    extreme = extreme_job()
    names = ("task_managers", "story", "vertices")
    more = {"directory": "/jobs/1", "warnings": ("memory",), **{name: getattr(managed_job(), name) for name in names}}
    yield replace(extreme, **more)
    yield extreme
    yield Situation().described()
    yield Situation().runs(1, 0, 1).described()
    yield Situation().reports(0, (1, 2), 3).described()
    sink = OperatorDescription("out", "Sink: files", "00" * 16)
    yield replace(extreme, vertices=tuple(replace(one, operators=(sink,)) for one in extreme.vertices))


def names(tables: Tables) -> set[tuple[str, str]]:
    """(view, figure) of all that there are."""
    values = (found for job in samples() for found in figures(job, tables))
    found = {(view, name) for view, name, _ in values if view != "description"}
    found |= {("description", name) for name in of_type(JobDescription, set())}
    found |= {("page", name.replace(" ", ".")) for name in of_page()}
    found |= {("progress", name) for name in of_progress_line()}
    numbers = ("int", "bigint", "double", "map<string, double>", "map<string, bigint>")
    columns = ((table, *column) for table in TABLES for column in columns_of(table).items())
    return found | {("history", f"{table}.{name}") for table, name, kind in columns if kind in numbers}


def row_of(view: str, figure: str) -> Row | None:
    return next((row for row in ROWS if row.named(view, figure)), None)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Tables:
    return Tables(monkeypatch)


def test_every_figure_has_a_row_and_every_row_its_figures(tables: Tables) -> None:
    without, used = list[str](), set[tuple[str, str | None]]()
    for view, name in sorted(names(tables)):
        row = row_of(view, name)
        if row is None:
            without.append(f"{view}: {name}")
        else:
            used.add((view, row.named(view, name)))
    assert without == [], "say in tests/support/figures.py of what they are, and who has told them"
    assert [(row.view, one) for row in ROWS for one in row.figures.split() if (row.view, one) not in used] == []


# ---------------------------------------------------------------------- and what stands there


def pretences(found: JobDescription, tables: Tables) -> list[tuple[str, str, Any]]:
    """The figures that say something other than that nothing was told."""
    pretend = []
    for view, name, value in figures(found, tables):
        row = row_of(view, name)
        assert row is not None or view == "description", (view, name)
        if row is not None and row.untold is not KNOWN and not any(is_same(value, one) for one in row.untold):
            pretend.append((view, name, value))
    return pretend


def is_same(value: Any, other: Any) -> bool:
    if isinstance(other, float) and math.isnan(other):
        return isinstance(value, float) and math.isnan(value)
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def test_before_the_first_report_no_figure_pretends(tables: Tables) -> None:
    assert pretences(Situation().waits(20).described(), tables) == []


def test_in_a_long_epoch_no_figure_pretends_of_a_task_that_has_said_nothing(tables: Tables) -> None:
    assert pretences(only(Situation().runs(15, 0).described(), 1), tables) == []


def test_of_a_task_that_stands_still_it_is_not_known_what_it_does_now(tables: Tables) -> None:
    found = pretences(only(Situation().runs(5, 0, 1).waits(20).described(), 0), tables)
    assert found, "what it has said before"
    assert [one for one in found if (row := row_of(*one[:2])) is not None and row.since == MINUTE] == []


#: What a task has done in ten minutes of a long epoch, one record a second, by the end of the figure's name.
WORKED: dict[str, Any] = {
    "metrics.read-records": 599,
    "metrics.read-records-complete": True,
    "metrics.accumulated-idle-time": 0,
    "metrics.accumulated-busy-time": 599_000.0,
    "subtasks.idleRatio": 0.0,
    "subtasks.busyRatio": 1.0,
    "task/numRecordsIn": 599,
    "task/idleTimeMsPerSecond": 0.0,
    "task/busyTimeMsPerSecond": 1_000.0,
    "task/accumulateIdleTimeMs": 0.0,
    "flink.taskmanager_job_task_numRecordsIn": 599.0,
    "flink.taskmanager_job_task_busyTimeMsPerSecond": 1_000.0,
    "flink.taskmanager_job_task_idleTimeMsPerSecond": 0.0,
    "flink.taskmanager_job_task_operator_numRecordsIn": 599.0,
    "ExecutionDescription.idle_ms": 0.0,
    "RatesDescription.idle_ms": 0.0,
    "RatesDescription.busy_ms": 1_000.0,
    "vertex/in": "0 + 599",
    "vertex/busy": "100 %",
    "job/in/s": "1",
}


def test_in_a_long_epoch_a_task_that_works_is_busy_in_every_view(tables: Tables) -> None:
    situation = Situation().runs(10, 0, 1)
    described_job = situation.described()
    found = replace(only(described_job, 0), running_epoch=described_job.running_epoch)
    vertex = replace(found.vertices[1], running_records_in=599)
    seen = defaultdict(set)
    for _, name, value in figures(replace(found, vertices=(vertex,)), tables):
        for end in WORKED:
            if f".{name}".endswith(f".{end}"):
                seen[end].add(value)
    assert seen == {end: {value} for end, value in WORKED.items()}


@pytest.mark.parametrize("noticed", [True, False])
def test_after_the_death_of_a_worker_no_figure_and_no_warning_has_it(tables: Tables, noticed: bool) -> None:
    size, sizes = 123_456_789, MemoryConfiguration(python=200_000_000)
    situation = Situation().reports(0, (4_711, 4_712), size)
    assert near_limits(situation.managers.describe(), sizes), "two processes are too much"
    if noticed:
        situation.managers.task_failed(RetryableError("a Python worker was lost"))
    else:
        situation.waits(2)
    situation.reports(1, (4_713, 4_712), 1_000)
    assert near_limits(situation.managers.describe(), sizes) == {}
    assert [found for found in figures(situation.described(), tables) if re.search(r"\b4711\b", str(found[2]))] == []
    (manager,) = situation.managers.describe()
    assert [(one.pid, one.rss_bytes) for one in manager.workers] == [(4_712, 1_000), (4_713, 1_000)]
