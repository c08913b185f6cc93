"""Lists of jobs: Flink's, and a live table.

Rule: a list is what the drivers and the directories say at that moment; nothing is kept between two of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any

from flinkish.cli.shown import UNKNOWN, age, duration, number, one_line, table, watermark
from flinkish.cli.targets import Finder, Job
from flinkish.errors import FlinkishError

_SCHEDULED = ("CREATED", "INITIALIZING")
#: Each of Flink's headings, and what is said where there is no such job; "": nothing.
_HEADINGS = {
    "running": ("------------------ Running/Restarting Jobs -------------------", "No running jobs."),
    "scheduled": ("----------------------- Scheduled Jobs -----------------------", "No scheduled jobs."),
    "terminated": ("---------------------- Terminated Jobs -----------------------", ""),
}
_END = "--------------------------------------------------------------"
#: How long a driver that is asked by files has to answer, in seconds, so that a list comes soon.
_ANSWER_S = 3.0
_AT_ONCE = 8
#: Clears a terminal and goes to its first line.
_CLEAR = "\x1b[H\x1b[2J"
#: The time over which the table counts records per second, in ms.
_WINDOW_MS = 60_000


@dataclass(frozen=True)
class Listed:
    """A job of a list, with its description if its driver has given one."""

    job: Job
    #: without its subtasks
    described: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The entry of ``list --json``."""
        job = self.job
        return {
            "id": job.id,
            "name": job.name,
            "status": job.status,
            "start_time_ms": job.start_ms,
            "end_time_ms": job.end_ms,
            "directory": job.directory,
            "rest": None if job.client is None else job.client.url,
        }


def listed(finder: Finder) -> list[Listed]:
    """All jobs that are found, in the order of their starts."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(_looked_at, finder.all()))
    return sorted(found, key=lambda one: (one.job.start_ms or 0, one.job.name))


def _looked_at(job: Job) -> Listed:
    """A job with its directory and its status, as its driver or its directory tells them."""
    if job.client is not None:
        with suppress(FlinkishError, LookupError, TypeError):
            described = job.client.get(f"/jobs/{job.id}/description", subtasks="none")["job"]
            return Listed(replace(job, directory=described["directory"]), described)
        return Listed(job)
    assert job.directory is not None
    from flinkish.cli.ended import ended
    from flinkish.jobmanager.requests import ask

    with suppress(FlinkishError):
        gone = ended(job.directory)
        if gone is not None:
            return Listed(replace(job, id=gone.id, name=gone.name, status=gone.status, end_ms=gone.ended_ms))
        told = ask(job.directory, "describe", _ANSWER_S)
        return Listed(
            replace(job, id=told["id"], name=told["name"], status=told["status"], start_ms=told["start_time_ms"]), told
        )
    return Listed(job)


def kind_of(job: Job) -> str:
    """Under which of Flink's headings a job stands."""
    return "scheduled" if job.status in _SCHEDULED else "terminated" if job.has_ended else "running"


def wanted(every: bool, running: bool, scheduled: bool) -> tuple[str, ...]:
    """The kinds of jobs that the options of ``list`` ask for."""
    if every:
        return ("running", "scheduled", "terminated")
    chosen = tuple(kind for kind, given in (("running", running), ("scheduled", scheduled)) if given)
    return chosen or ("running", "scheduled")


def list_text(jobs: list[Job], kinds: tuple[str, ...], zone: tzinfo | None = None) -> str:
    """The jobs as Flink's command line lists them, with their directories."""
    lines: list[str] = []
    for kind in kinds:
        heading, nothing = _HEADINGS[kind]
        of_kind = [job for job in jobs if kind_of(job) == kind]
        if of_kind:
            lines += [heading, *(_line(job, zone) for job in of_kind), _END]
        elif nothing:
            lines.append(nothing)
    return "\n".join(lines)


def _line(job: Job, zone: tzinfo | None) -> str:
    started_ms = job.end_ms if job.start_ms is None else job.start_ms
    when = UNKNOWN
    if started_ms is not None:
        when = datetime.fromtimestamp(started_ms / 1000).astimezone(zone).strftime("%d.%m.%Y %H:%M:%S")
    line = f"{when} : {job.id or UNKNOWN} : {one_line(job.name)} ({job.status or 'not known'})"
    return line if job.directory is None else f"{line}  {one_line(job.directory, 1_000)}"


def live_table(jobs: list[Listed], now_ms: int, zone: tzinfo | None = None) -> str:
    """The jobs as a table of what changes."""
    heads = ("job", "id", "status", " epochs", " in/s", " out/s", " restarts", "checkpoint", "watermark", "directory")
    rows = [_row(one, now_ms, zone) for one in jobs]
    return "\n".join(table(heads, rows, "")) if rows else "No jobs."


def _row(one: Listed, now_ms: int, zone: tzinfo | None) -> tuple[object, ...]:
    job, described = one.job, one.described
    place = job.directory or (job.client.url if job.client is not None else UNKNOWN)
    head = (job.name, (job.id or UNKNOWN)[:8], job.status or "not known")
    if described is None:
        return (*head, *[UNKNOWN] * 6, place)
    metrics, taken = described["metrics"], described["checkpoints"]["latest_completed"]
    since_ms = now_ms - described["times_ms"].get(job.status, now_ms)
    return (
        *head[:2],
        f"{head[2]} {duration(since_ms)}",
        number(metrics.get("epochs", 0)),
        *(number(rate) for rate in _rates(described, now_ms)),
        number(metrics.get("restarts", 0)),
        UNKNOWN if taken is None else age(taken["trigger_time_ms"], now_ms),
        watermark(metrics.get("watermark_ms"), zone),
        place,
    )


def _rates(described: dict[str, Any], now_ms: int) -> tuple[float | None, float | None]:
    """Records in and out per second of the epochs of the last minute, the one that runs among them; None: there was no
    epoch yet."""
    recent = [epoch for epoch in described["epochs"] if now_ms - epoch["time_ms"] < _WINDOW_MS]
    if described.get("running_epoch"):
        recent.append({**described["running_epoch"], "time_ms": now_ms})
    if not recent:
        return (0.0, 0.0) if described["epochs"] else (None, None)
    begun_ms = recent[0]["time_ms"] - recent[0]["duration_ms"]
    seconds = max(1.0, (now_ms - begun_ms) / 1_000)
    records_in, records_out = (sum(epoch[name] for epoch in recent) for name in ("records_in", "records_out"))
    return records_in / seconds, records_out / seconds


def watch(
    draw: Callable[[], str],
    interval_s: float,
    in_place: bool | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Draw again and again until Ctrl-C. ``in_place``: by default on a terminal; elsewhere one stands below the
    other."""
    if in_place is None:
        in_place = sys.stdout.isatty()
    with suppress(KeyboardInterrupt):
        while True:
            text = draw()
            print(f"{_CLEAR}{text}" if in_place else text, flush=True)
            pause(interval_s)
