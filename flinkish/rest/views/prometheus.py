"""All metrics in the text format of Prometheus, under the names and labels of Flink's PrometheusReporter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.route import Asked, Route, Text
from flinkish.rest.views.metrics import (
    cluster_metrics,
    job_metrics,
    operator_metrics,
    operators_of,
    task_manager_metrics,
    task_metrics,
)
from flinkish.rest.views.shapes import ENDED, UNASSIGNED, host_of, task_manager_of
from flinkish.rest.views.task_managers import task_managers_of
from flinkish.rest.views.vertices import execution_id

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Characters that Flink replaces in names, and by default in the values of labels (filterLabelValueCharacters).
_OTHERS = re.compile(r"[^a-zA-Z0-9:_]")


class _Samples:
    """Samples, which the format wants name by name."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        #: (scope, name as it is) -> the lines of it
        self._by_name: dict[tuple[str, str], list[str]] = {}

    def add(self, scope: str, labels: str, name: str, value: Any) -> None:
        """Add a sample, unless it is no number, as some of Flink's gauges are not."""
        number = _number(value)
        if number is not None:
            lines = self._by_name.get((scope, name))
            if lines is None:
                lines = self._by_name[scope, name] = self._begun(scope, name)
            lines.append(f"{labels} {number}")

    def _begun(self, scope: str, name: str) -> list[str]:
        shown, begun = _filtered(f"flink_{scope}_{name}"), [f"{name} (scope: {scope})"]
        # of two names that are one without their special characters, only the first is shown
        return begun if shown in self._lines else self._lines.setdefault(shown, begun)

    def text(self) -> str:
        """All samples; a line of help and one of the type come before those of a name."""
        found = []
        for name, (help_text, *samples) in self._lines.items():
            found.append(f"# HELP {name} {_escaped(help_text)}\n# TYPE {name} gauge")
            found += [f"{name}{sample}" for sample in samples]
        return "\n".join([*found, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


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
        samples.add("jobmanager", f"{{{_labels(of_driver)}}}", name, value)
    for manager in task_managers_of(described).values():
        labels = _labels({"host": manager.host, "tm_id": manager.id})
        for name, value in task_manager_metrics(manager).items():
            samples.add("taskmanager", f"{{{labels}}}", name, value)
    for job in described.jobs:
        if job.status not in ENDED:
            labels = _labels({**of_driver, "job_id": job.id, "job_name": job.name})
            for name, value in job_metrics(job, asked.now_ms).items():
                samples.add("jobmanager_job", f"{{{labels}}}", name, value)
            _add_tasks(samples, job)
    return Text(samples.text(), _CONTENT_TYPE)


def _add_tasks(samples: _Samples, job: JobDescription) -> None:
    for vertex in job.vertices:
        of_vertex = _labels(
            {"job_id": job.id, "job_name": job.name, "task_id": vertex.job_vertex_id, "task_name": vertex.name}
        )
        operators = operators_of(vertex)
        of_operators = {
            operator_id: _labels({"operator_id": operator_id, "operator_name": name})
            for _, operator_id, name in operators
        }
        for subtask in vertex.subtasks:
            execution = subtask.current
            manager = task_manager_of(job, execution)
            if manager == UNASSIGNED:
                continue
            own = _labels(
                {
                    "task_attempt_id": execution_id(job, vertex, subtask.subtask, execution.attempt),
                    "task_attempt_num": str(execution.attempt),
                    "subtask_index": str(subtask.subtask),
                    "host": host_of(job, execution),
                    "tm_id": manager,
                }
            )
            labels = f"{of_vertex},{own}"
            for name, value in task_metrics(vertex, execution).items():
                samples.add("taskmanager_job_task", f"{{{labels}}}", name, value)
            for operator_id, _, name, value in operator_metrics(vertex, execution, operators):
                of_one = f"{{{labels},{of_operators[operator_id]}}}"
                samples.add("taskmanager_job_task_operator", of_one, name, value)


ROUTES = (Route("GET", "/metrics", scrape),)
