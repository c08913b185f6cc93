"""Shows a job in a notebook: as a table, and as its graph with the records of each vertex.

Rule: it renders the description of the job, as every view does, and computes nothing of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from flinkish.common.html_text import facts, text
from flinkish.graph.drawing import Arrow, Box, Drawing, svg
from flinkish.jobmanager.job.description import JobDescription, VertexDescription


def job_html(job: JobDescription) -> str:
    """A job as HTML."""
    began = datetime.fromtimestamp(job.start_time_ms / 1000, timezone.utc)
    failure = job.exceptions[-1] if job.exceptions else None
    savepoint = job.checkpoints.latest_savepoint
    done = vars(job.totals) if job.totals.drivers else job.metrics
    shown = {
        "job": job.id,
        "status": f"{job.status}, {job.doing}" if job.doing else job.status,
        "since": f"{began:%Y-%m-%d %H:%M:%S} UTC",
        "directory": job.directory,
        "epochs": _figure(done.get("epochs")),
        "records": f"{_figure(done.get('records_in'))} in, {_figure(done.get('records_out'))} out",
        "restarts": done.get("restarts") and _figure(done["restarts"]),
        "last savepoint": savepoint.path if savepoint else None,
        "last failure": f"{failure.error_class}: {failure.what or failure.message}" if failure else None,
        "warnings": "; ".join(job.warnings),
    }
    return facts(shown) + _link(job.driver.rest) + svg(drawing_of_description(job))


def _link(url: str | None) -> str:
    if url is None or not url.startswith(("http://", "https://")):
        return ""
    return f'<p>REST API and Web UI: <a href="{text(url)}">{text(url)}</a></p>'


def drawing_of_description(job: JobDescription) -> Drawing:
    """The job graph with what each vertex has done."""
    arrows = (
        Arrow(edge.source, vertex.id, edge.ship_strategy + ("" if edge.tag is None else f" [{edge.tag}]"))
        for vertex in job.vertices
        for edge in vertex.edges
    )
    return Drawing(tuple(_box(vertex, job.totals.vertices) for vertex in job.vertices), tuple(arrows))


def _box(vertex: VertexDescription, totals: Mapping[str, Mapping[str, int]]) -> Box:
    done = totals.get(vertex.uid, vars(vertex))
    notes = (
        f"{vertex.parallelism} × {vertex.state.lower()}",
        f"{_figure(done['records_in'])} in, {_figure(done['records_out'])} out",
    )
    rates = [rates for subtask in vertex.subtasks if (rates := subtask.current.rates) is not None]
    busy = max(one.busy_ms for one in rates) / 1000 if rates else None
    held = max((one.backpressured_ms for one in rates), default=0.0) / 1000
    title = "\n".join(f"{operator.name} (uid {operator.uid})" for operator in vertex.operators)
    return Box(vertex.id, vertex.level, tuple(one.name for one in vertex.operators), notes, title, busy, held)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
