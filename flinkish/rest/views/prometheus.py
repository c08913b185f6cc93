"""All metrics in the text format of Prometheus, under the names and labels of Flink's PrometheusReporter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from flinkish.errors import escaped
from flinkish.jobmanager.job.description import ExecutionDescription, JobDescription, VertexDescription
from flinkish.rest.route import Asked, Route, Text
from flinkish.rest.views.metrics import (
    OF_OPERATORS,
    Operators,
    cluster_metrics,
    job_metrics,
    task_metrics,
)
from flinkish.rest.views.shapes import ENDED, UNASSIGNED, host_of, task_manager_of
from flinkish.rest.views.task_managers import metrics_of, task_managers_of

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Characters that Flink replaces in names, and by default in the values of labels (filterLabelValueCharacters).
_OTHERS = re.compile(r"[^a-zA-Z0-9:_]")


class _Samples:
    """Samples, which the format wants name by name."""

    def __init__(self) -> None:
        #: name as it is shown -> the lines of it
        self._lines: dict[str, list[str]] = {}
        #: (scope, name as it is) -> name as it is shown, and the lines of it
        self._known: dict[tuple[str, str], tuple[str, list[str]]] = {}

    def add(self, scope: str, name: str, labels: str, value: Any) -> None:
        """Add a sample, unless it is no number, as some of Flink's gauges are not."""
        number = _number(value)
        if number is not None:
            shown, lines = self._of(scope, name)
            lines.append(f"{shown}{{{labels}}} {number}")

    def add_all(self, scope: str, name: str, labels: Iterable[str], values: Iterable[float]) -> None:
        """Add samples of finite numbers; NaN, which is not known, has none, since a sum with it would be NaN, too."""
        shown, lines = self._of(scope, name)
        lines += [f"{shown}{{{each}}} {value}" for each, value in zip(labels, values, strict=True) if value == value]

    def _of(self, scope: str, name: str) -> tuple[str, list[str]]:
        found = self._known.get((scope, name))
        if found is None:
            shown = _filtered(f"flink_{scope}_{name}")
            # whoever splits lines at more than the line feed finds one line, too; a single backslash is no character
            told = escaped(name).replace("\\", "\\\\")
            lines = [f"# HELP {shown} {told} (scope: {scope})\n# TYPE {shown} gauge"]
            # of two names that are one without their special characters, only the first is shown
            self._lines.setdefault(shown, lines)
            found = self._known[scope, name] = shown, lines
        return found

    def text(self) -> str:
        """All samples; a line of help and one of the type come before those of a name."""
        return "\n".join([*("\n".join(lines) for lines in self._lines.values()), ""])


def _filtered(text: str) -> str:
    return _OTHERS.sub("_", text)


def _labels(values: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_filtered(value)}"' for name, value in values.items())


def _number(value: Any) -> str | None:
    if isinstance(value, bool):
        return "1.0" if value else "0.0"
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return None
        text = repr(number)
        return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)
    return None


def scrape(asked: Asked) -> Text:
    """``/metrics``: those of the driver, of its running jobs, and of their tasks and operators."""
    described, samples = asked.jobs.describe(), _Samples()
    of_driver = {"host": described.driver.host}
    for name, value in cluster_metrics(described).items():
        samples.add("jobmanager", name, _labels(of_driver), value)
    for manager in task_managers_of(described).values():
        labels = _labels({"host": manager.host, "tm_id": manager.id})
        for name, value in metrics_of(manager).items():
            samples.add("taskmanager", name, labels, value)
    for job in described.jobs:
        if job.status not in ENDED:
            labels = _labels({**of_driver, "job_id": job.id, "job_name": job.name})
            for name, value in job_metrics(job, asked.now_ms).items():
                samples.add("jobmanager_job", name, labels, value)
            _add_tasks(samples, job)
    return Text(samples.text(), _CONTENT_TYPE)


def _add_tasks(samples: _Samples, job: JobDescription) -> None:
    for vertex in job.vertices:
        of_vertex = _labels(
            {"job_id": job.id, "job_name": job.name, "task_id": vertex.job_vertex_id, "task_name": vertex.name}
        )
        placed: list[ExecutionDescription] = []
        labels: list[str] = []
        for subtask in vertex.subtasks:
            manager = task_manager_of(job, subtask.current)
            if manager != UNASSIGNED:
                host = host_of(job, subtask.current)
                own = _labels({"subtask_index": str(subtask.subtask), "host": host, "tm_id": manager})
                placed.append(subtask.current)
                labels.append(f"{of_vertex},{own}")
        if placed:
            _add_vertex(samples, vertex, placed, labels)


def _add_vertex(
    samples: _Samples, vertex: VertexDescription, placed: list[ExecutionDescription], labels: list[str]
) -> None:
    of_tasks = [task_metrics(vertex, execution) for execution in placed]
    for name in of_tasks[0]:
        samples.add_all("taskmanager_job_task", name, labels, [metrics[name] + 0 for metrics in of_tasks])
    operators, scope = Operators(vertex), "taskmanager_job_task_operator"
    of_operators = {
        one.operator_id: "," + _labels({"operator_id": one.operator_id, "operator_name": one.name})
        for one in vertex.operators
    }
    first, last = (of_operators[one.operator_id] for one in (operators.first, operators.last))
    coming, leaving = [f"{each}{first}" for each in labels], [f"{each}{last}" for each in labels]
    for name in OF_OPERATORS:
        samples.add_all(scope, name, coming if "In" in name else leaving, [metrics[name] for metrics in of_tasks])
    for each, execution in zip(labels, placed, strict=True):
        for operator, name, value in operators.of_functions(execution):
            samples.add(scope, name, each + of_operators[operator.operator_id], value)


ROUTES = (Route("GET", "/metrics", scrape),)
