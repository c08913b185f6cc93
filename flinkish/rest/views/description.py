"""The description of a job as it is, for the page of our own: what Flink's views have no place for."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from heapq import nlargest
from math import isfinite
from typing import Any

from flinkish.jobmanager.job.description import SubtaskDescription, VertexDescription
from flinkish.rest.route import Asked, Route
from flinkish.rest.views.shapes import Json, job_of

#: The subtasks of a vertex that are told of each matter: those that are furthest behind, busiest, largest.
MOST_SUBTASKS = 16

_LEFT_OUT = ("vertices", "plan", "configuration", "accumulator_types")


def description(asked: Asked) -> Json:
    """``/jobs/:id/description``: the job, with those of its subtasks that stand out."""
    job = job_of(asked)
    fields = {name: value for name, value in vars(job).items() if name not in _LEFT_OUT}
    shown = {name: _plain(value) for name, value in fields.items()}
    return {"now_ms": asked.now_ms, "job": {**shown, "vertices": [_vertex(vertex) for vertex in job.vertices]}}


def _plain(value: Any) -> Any:
    """A part of the description as JSON has it, which knows no infinite numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _vertex(vertex: VertexDescription) -> Json:
    fields = {name: _plain(value) for name, value in vars(vertex).items() if name != "subtasks"}
    chosen = sorted(_outstanding(vertex), key=lambda subtask: subtask.subtask)
    subtasks = [
        {"subtask": subtask.subtask, "name": subtask.name, "current": _plain(subtask.current)} for subtask in chosen
    ]
    return {**fields, "subtasks": subtasks}


def _outstanding(vertex: VertexDescription) -> list[SubtaskDescription]:
    """The subtasks that say what a vertex waits for, what holds its watermark back, and where its state is."""
    if len(vertex.subtasks) <= MOST_SUBTASKS:
        return list(vertex.subtasks)

    def behind(subtask: SubtaskDescription) -> tuple[bool, int]:
        watermark_ms = subtask.current.watermark_ms
        return watermark_ms is None, -(watermark_ms or 0)

    by_matter = (
        nlargest(MOST_SUBTASKS, vertex.subtasks, key=behind),
        nlargest(MOST_SUBTASKS, vertex.subtasks, key=lambda subtask: subtask.current.rates.busy_ms),
        nlargest(MOST_SUBTASKS, vertex.subtasks, key=lambda subtask: subtask.current.state_bytes),
        [subtask for subtask in vertex.subtasks if subtask.current.slow_call is not None][:MOST_SUBTASKS],
    )
    return list({subtask.subtask: subtask for found in by_matter for subtask in found}.values())


ROUTES: tuple[Route, ...] = (Route("GET", "/jobs/{job}/description", description),)
