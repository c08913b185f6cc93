"""The description of a job as it is, for the page of our own: what Flink's views have no place for."""

from __future__ import annotations

from dataclasses import asdict, replace
from heapq import nlargest

from flinkish.jobmanager.job.description import SubtaskDescription, VertexDescription
from flinkish.rest.route import Asked, Route
from flinkish.rest.views.shapes import Json, finite, job_of

#: The subtasks of a vertex that are told of each matter: those that are furthest behind, busiest, largest.
MOST_SUBTASKS = 16


def description(asked: Asked) -> Json:
    """``/jobs/:id/description``: the job, with those of its subtasks that stand out."""
    job = job_of(asked)
    vertices = tuple(replace(vertex, subtasks=tuple(_outstanding(vertex))) for vertex in job.vertices)
    shown = replace(job, vertices=vertices, plan={}, configuration={}).without_earlier()
    return {"now_ms": asked.now_ms, "job": finite(asdict(shown))}


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
    chosen = {subtask.subtask for outstanding in by_matter for subtask in outstanding}
    return [subtask for subtask in vertex.subtasks if subtask.subtask in chosen]


ROUTES: tuple[Route, ...] = (Route("GET", "/jobs/{job}/description", description),)
