"""The description of a job as it is, for our own page and command line: what Flink's views have no place for."""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest

from flinkish.jobmanager.job.description import NO_RATES, RatesDescription, SubtaskDescription, VertexDescription
from flinkish.rest.route import Asked, BadRequestError, Route
from flinkish.rest.views.shapes import Json, finite, job_of

#: The subtasks of a vertex that are told of each matter: those that are furthest behind, busiest, largest.
MOST_SUBTASKS = 16


def description(asked: Asked) -> Json:
    """``/jobs/:id/description``: the job, with those of its subtasks that stand out. ``?subtasks=none``: without any;
    ``?subtasks=all``: all that is known, except the earlier attempts of subtasks, which ``&attempts=true`` adds."""
    job, subtasks = job_of(asked), asked.query.get("subtasks", "")
    if subtasks not in ("", "none", "all"):
        raise BadRequestError("The parameter 'subtasks' is neither 'all' nor 'none'.")
    if subtasks != "all":
        chosen = _outstanding if not subtasks else lambda vertex: []
        vertices = tuple(replace(vertex, subtasks=tuple(chosen(vertex))) for vertex in job.vertices)
        job = replace(job, vertices=vertices, plan={}, configuration={})
    shown = job if asked.query.get("attempts") == "true" else job.without_earlier()
    return {"now_ms": asked.now_ms, "job": finite(shown)}


def _rates(subtask: SubtaskDescription) -> RatesDescription:
    return subtask.current.rates or NO_RATES


def _outstanding(vertex: VertexDescription) -> list[SubtaskDescription]:
    """The subtasks that say what a vertex waits for, what holds its watermark back, and where its state is."""
    if len(vertex.subtasks) <= MOST_SUBTASKS:
        return list(vertex.subtasks)

    def behind(subtask: SubtaskDescription) -> tuple[bool, int]:
        watermark_ms = subtask.current.watermark_ms
        return watermark_ms is None, -(watermark_ms or 0)

    by_matter = (
        nlargest(MOST_SUBTASKS, vertex.subtasks, key=behind),
        nlargest(MOST_SUBTASKS, vertex.subtasks, key=lambda subtask: _rates(subtask).busy_ms),
        nlargest(MOST_SUBTASKS, vertex.subtasks, key=lambda subtask: _rates(subtask).backpressured_ms),
        nlargest(MOST_SUBTASKS, vertex.subtasks, key=lambda subtask: subtask.current.state_bytes or 0),
        [subtask for subtask in vertex.subtasks if subtask.current.slow_call is not None][:MOST_SUBTASKS],
    )
    chosen = {subtask.subtask for outstanding in by_matter for subtask in outstanding}
    return [subtask for subtask in vertex.subtasks if subtask.subtask in chosen]


ROUTES: tuple[Route, ...] = (Route("GET", "/jobs/{job}/description", description),)
