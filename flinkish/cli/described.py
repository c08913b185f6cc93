"""A job as a text for people, out of its description.

Rule: these are pure functions of the description (as JSON gives it), the time and the zone. What is not worth a line is
left out; all of it is in ``--json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any

from flinkish.cli.shown import UNKNOWN, age, duration, number, one_line, size, table, time, time_and_age, watermark
from flinkish.errors import escaped

Json = Mapping[str, Any]

#: The most lines of each kind.
_SPLITS, _FAILURES, _EVENTS, _ACCUMULATORS, _SLOW_CALLS, _CALLS = 12, 3, 5, 20, 5, 40
_ENDED = ("FINISHED", "CANCELED", "FAILED", "SUSPENDED")


def job_text(job: Json, now_ms: int, zone: tzinfo | None = None, end: Json | None = None) -> str:
    """A job that a driver knows, as text.

    Args:
        job: its description.
        now_ms: the time, by the clock of the driver.
        zone: the zone of the times; None: that of this machine.
        end: how it has ended, as its directory tells; None: it has not, or nobody knows.
    """
    lines = list(_head(job, now_ms, zone))
    if end is not None:
        lines += _facts([("how", end["how"]), ("savepoint", end["savepoint"]), ("to go on", end["again"])])
    for title, section in (
        ("Warnings", [f"  {one_line(warning, 2_000)}" for warning in job["warnings"]]),
        ("Vertices", _vertices(job, zone)),
        ("Task managers", _task_managers(job, now_ms)),
        ("Sources", _sources(job, zone)),
        (_title_of_positions(job), _positions(job)),
        ("Sinks", _sinks(job)),
        ("Records that were dropped or sent elsewhere", _counts(job)),
        ("Checkpoints and savepoints", _checkpoints(job, now_ms, zone)),
        ("Calls that do not return", _slow_calls(job)),
        ("Failures", list(_failures(job, now_ms, zone))),
        ("Accumulators", _accumulators(job)),
        ("Lifecycle of operators", _lifecycle(job, zone)),
        ("Last events", _events(job, now_ms, zone)),
    ):
        if section:
            lines += ["", title, *section]
    return "\n".join(lines)


def ended_text(ended: Json, now_ms: int, zone: tzinfo | None = None) -> str:
    """A job whose driver is gone, as text: how it has ended, when, and what starts it again."""
    rows = [
        ("ended", time_and_age(ended["ended_ms"], now_ms, zone)),
        ("how", ended["how"]),
        ("savepoint", ended["savepoint"]),
        ("last epoch", ended["last_epoch"]),
        ("directory", ended["directory"]),
        ("driver", ended["driver"]),
        ("to go on", ended["again"]),
    ]
    return "\n".join([_first_line(ended, ""), *_facts(rows)])


def _first_line(job: Json, since: str) -> str:
    return f"{one_line(job['name'])} ({job['id'] or 'no id yet'}): {job['status']}{since}"


def _facts(rows: list[tuple[str, Any]]) -> list[str]:
    return [f"  {name:<11}  {one_line(value, 2_000)}" for name, value in rows if value not in (None, "")]


def _head(job: Json, now_ms: int, zone: tzinfo | None) -> Iterator[str]:
    metrics, driver, status = _since_begin(job), job["driver"], job["status"]
    entered_ms = job["end_time_ms"] if status in _ENDED else job["times_ms"].get(status, job["start_time_ms"])
    yield _first_line(job, f" since {time_and_age(entered_ms, now_ms, zone)}")
    place = f"process {driver['pid']} on {driver['host']}" + (f", {driver['rest']}" if driver.get("rest") else "")
    restarts = int(metrics.get("restarts", 0))
    attempts = f"{restarts} restart{'' if restarts == 1 else 's'}"
    if job["attempts"]:
        attempts = f"attempt {job['attempts'][-1]['number']}, {attempts}"
    if metrics.get("task_failures"):
        attempts += f", {number(metrics['task_failures'])} task failures after which Spark ran a task again"
    if job["restart_strategy"]:
        attempts += f"; after a failure: {job['restart_strategy']}"
    yield from _facts(
        [
            ("doing", job["doing"]),
            ("started", time_and_age(job["start_time_ms"], now_ms, zone)),
            ("driver", place),
            ("directory", job["directory"] or "a temporary one"),
            ("attempts", attempts),
            ("epochs", _epochs(job, now_ms)),
            ("running", _running_epoch(job)),
            ("records", f"{number(metrics.get('records_in', 0))} in, {number(metrics.get('records_out', 0))} out"),
            ("watermark", _with_lag(metrics.get("watermark_ms"), now_ms, zone)),
            ("state", job["state"]),
            ("slots", _slots(job)),
            ("memory", _areas(job)),
        ]
    )


def _since_begin(job: Json) -> Json:
    """What the job has done since it began, by which its vertices count, too. A description of an earlier flinkish has
    what it has done in its driver."""
    totals = job.get("totals") or {}
    return {**job["metrics"], **totals} if totals.get("drivers") else job["metrics"]


def _slots(job: Json) -> str:
    slots = job.get("slots")
    if slots is None or slots["present"] is None:
        return ""
    return slots["note"] or f"{slots['present']}, of which the widest level needs {slots['required']}"


def _areas(job: Json) -> str:
    """The areas of memory of a task manager, without those of which Spark has none or says nothing."""
    areas = dict(job.get("memory") or {})
    origin, total, _ = areas.pop("origin", ""), areas.pop("process", None), areas.pop("python", None)
    parts = ", ".join(f"{name.replace('_', ' ')} {size(each)}" for name, each in areas.items() if each)
    if not parts:
        return ""
    whole = "" if total is None else f"{size(total)}: "
    return f"of a task manager {whole}{parts} (by {origin})"


def _epochs(job: Json, now_ms: int) -> str:
    count = number(_since_begin(job).get("epochs", 0))
    if not job["epochs"]:
        return count
    last = job["epochs"][-1]
    return f"{count}, the last one {last['epoch']} took {duration(last['duration_ms'])}, {age(last['time_ms'], now_ms)}"


def _running_epoch(job: Json) -> str:
    epoch = job["running_epoch"]
    if epoch is None:
        return ""
    records = f"{number(epoch['records_in'])} records in, {number(epoch['records_out'])} out"
    return f"epoch {epoch['epoch']} for {duration(epoch['duration_ms'])}, {records}"


def _with_lag(watermark_ms: int | None, now_ms: int, zone: tzinfo | None) -> str:
    shown = watermark(watermark_ms, zone)
    behind = watermark_ms is not None and shown not in ("none", "end of input") and watermark_ms < now_ms
    return f"{shown} ({duration(now_ms - (watermark_ms or 0))} behind)" if behind else shown


# ---------------------------------------------------------------------- what runs


def _task_managers(job: Json, now_ms: int) -> list[str]:
    """Those that are there, and the last ones that were lost. A description of an earlier flinkish has none."""
    may_hold = (job.get("memory") or {}).get("python")
    limit = "" if may_hold is None else f" of {size(may_hold)}"
    heads = ("task manager", "status", " heard of", " slots", " running", " holds", " heap", " JVM", " Python", "")
    rows = []
    for one in job.get("task_managers", ()):
        memory, ended_ms = one["memory"], one["ended_ms"]
        heap = memory["heap_peak"] if memory["heap_used"] is None else memory["heap_used"]
        python = [worker["rss_bytes"] for worker in one["workers"] if worker["rss_bytes"]]
        rows.append(
            (
                one["id"],
                one["status"],
                age(one["heartbeat_ms"], now_ms),
                UNKNOWN if one["slots"] is None else one["slots"],
                UNKNOWN if one["running_tasks"] is None else one["running_tasks"],
                one["holds"],
                f"{size(heap)} of {size(memory['heap_max'])}",
                size(memory["jvm_rss"]),
                f"{size(sum(python))}{limit} in {len(python)}" if python else UNKNOWN,
                "" if ended_ms is None else f"{age(ended_ms, now_ms)}: {one_line(one['reason'], 300)}",
            )
        )
    return table(heads, rows) if rows else []


def _vertices(job: Json, zone: tzinfo | None) -> list[str]:
    heads = (
        *("vertex", "state", " parallelism", " in", " out", " in/s", " out/s"),
        *(" busy", " back-pressured", " state size", "watermark"),
    )
    rows = []
    for vertex in job["vertices"]:
        # a subtask that is busy all the time works 1,000 ms per second
        current = [subtask["current"] for subtask in vertex["subtasks"]]
        rates = [one["rates"] for one in current if one["rates"] is not None]
        busy, held = (
            f"{max(one[name] for one in rates) / 10:.0f} %" if rates else UNKNOWN
            for name in ("busy_ms", "backpressured_ms")
        )
        done = (job.get("totals") or {}).get("vertices", {}).get(vertex["uid"], vertex)
        rows.append(
            (
                vertex["name"],
                vertex["state"],
                vertex["parallelism"],
                *(_with_running(done[name], vertex.get(f"running_{name}")) for name in ("records_in", "records_out")),
                *(
                    number(float(sum(one[name] for one in rates)) if len(rates) == len(current) else None)
                    for name in ("records_in", "records_out")
                ),
                busy,
                held,
                size(vertex["state_bytes"]),
                watermark(vertex["watermark_ms"], zone),
            )
        )
    return table(heads, rows) if rows else []


def _with_running(done: int, running: int | None) -> str:
    """Records of the epochs that are committed, and of the one that runs."""
    return number(done) + (f" + {number(running)}" if running else "")


def _sources(job: Json, zone: tzinfo | None) -> list[str]:
    sources = [vertex for vertex in job["vertices"] if vertex["level"] == 0]
    rows = [
        (
            vertex["operators"][0]["name"] if vertex["operators"] else vertex["name"],
            vertex["uid"],
            _backlog(vertex),
            duration(vertex["backlog_age_ms"]),
            watermark(vertex["watermark_ms"], zone),
        )
        for vertex in sources
    ]
    return table(("source", "uid", " lag", " oldest waits", "watermark"), rows) if rows else []


def _backlog(vertex: Json) -> str:
    if vertex["backlog_splits"]:
        return f"{number(vertex['backlog_splits'])} splits"
    return UNKNOWN if vertex["backlog"] is None else f"{number(vertex['backlog'])} records"


def _last_positions(job: Json) -> Json | None:
    """The newest checkpoint or savepoint that says how far the sources were."""
    latest = (job["checkpoints"]["latest_completed"], job["checkpoints"]["latest_savepoint"])
    found = [one for one in latest if one is not None and one["offsets"]]
    return max(found, key=lambda one: int(one["epoch"]), default=None)


def _title_of_positions(job: Json) -> str:
    taken = _last_positions(job)
    return "" if taken is None else f"Positions of the sources at the end of epoch {taken['epoch']}"


def _positions(job: Json) -> list[str]:
    taken = _last_positions(job)
    rows: list[tuple[object, ...]] = []
    for uid, text in sorted(taken["offsets"].items()) if taken is not None else ():
        rows += [(uid, *row) for row in _splits(text)]
    return table(("source", "split", " position", " end", " left"), rows) if rows else []


def _splits(text: str) -> list[tuple[object, object, object, object]]:
    """The splits of a source with the position that is read next, the end if there is one, and what is left to it."""
    try:
        position = json.loads(text)
    except (ValueError, RecursionError):
        return [("", text, "", "")]
    if not isinstance(position, dict) or not isinstance(position.get("splits"), list):
        return [(name, value, "", "") for name, value in _flat(position, "")]
    rows: list[tuple[object, object, object, object]] = []
    for split, begin, end, *_ in position["splits"][:_SPLITS]:
        known = isinstance(begin, int) and isinstance(end, int)
        shown = [number(value) if isinstance(value, int) else UNKNOWN for value in (begin, end)]
        rows.append((split, *shown, number(end - begin) if known else UNKNOWN))
    more = position.get("splits_count", len(position["splits"])) - len(rows)
    ended = position.get("ended_count", len(position.get("ended", ())))
    if more > 0:
        rows.append((f"... {number(more)} more splits", "", "", ""))
    if ended:
        rows.append((f"{number(ended)} split{'' if ended == 1 else 's'} at their end", "", "", ""))
    return rows


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The figures of an offset of Spark by the way that leads to them: ``orders-3`` of ``{"orders": {"3": 17}}``."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}-{key}" if name else str(key))
    else:
        yield name, number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _sinks(job: Json) -> list[str]:
    rows = [
        (operator["name"].removeprefix("Sink: "), operator["uid"], vertex["parallelism"], vertex["state"])
        for vertex in job["vertices"]
        for operator in vertex["operators"]
        if operator["name"].startswith("Sink: ")
    ]
    return table(("sink", "uid", " parallelism", "state"), rows) if rows else []


def _counts(job: Json) -> list[str]:
    rows = [
        (operator["name"], operator["uid"], name, number(count))
        for vertex in job["vertices"]
        for operator in vertex["operators"]
        for name, count in operator["counts"].items()
        if count and name not in ("numRecordsIn", "numRecordsConsumed")
    ]
    return table(("operator", "uid", "count", " records"), rows) if rows else []


def _checkpoints(job: Json, now_ms: int, zone: tzinfo | None) -> list[str]:
    described = job["checkpoints"]
    pending = [one for one in described["history"] if one["status"] == "PENDING"]
    latest = [described[name] for name in ("latest_completed", "latest_savepoint", "latest_failed")]
    shown = {one["id"]: one for one in (*latest, *pending) if one is not None}
    rows = [
        (
            "savepoint" if one["is_savepoint"] else "incremental" if one["incremental"] else "checkpoint",
            one["id"],
            one["status"],
            one["epoch"],
            age(one["trigger_time_ms"], now_ms),
            duration(one["duration_ms"]),
            size(one["bytes_written"]),
            size(sum(one["state_bytes"].values())),
            one["failure_reason"] or one["path"] or UNKNOWN,
        )
        for _, one in sorted(shown.items())
    ]
    heads = ("kind", " id", "status", " epoch", "triggered", " took", " written", " state", "path")
    lines = table(heads, rows) if rows else []
    named = described["counts"].items()
    counts = [f"{number(count)} {status.lower()}" for status, count in named if count and status.isupper()]
    counts += [f"savepoints among them: {number(count)}" for status, count in named if count and status.islower()]
    if counts:
        lines = [f"  of this driver: {', '.join(counts)}", *lines]
    restored = described["restored"]
    if restored is not None:
        when = f", {time_and_age(restored['time_ms'], now_ms, zone)}" if restored["time_ms"] else ""
        lines.append(f"  restored from {one_line(restored['path'], 1_000)}{when}")
    return lines


# ---------------------------------------------------------------------- what is wrong, and what was


def _slow_calls(job: Json) -> list[str]:
    lines: list[str] = []
    for vertex in job["vertices"]:
        for subtask in vertex["subtasks"]:
            call = subtask["current"]["slow_call"]
            if call is not None:
                of = f"a call of operator '{call['operator']}' (uid {call['uid']}){call['details']}"
                record = "" if call["record"] is None else f", record {call['record']}"
                lines.append(
                    f"  {one_line(subtask['name'])}: {duration(call['running_ms'])}, {one_line(of + record, 1_000)}"
                )
                lines += _indented(call["stack"])
            if len(lines) > 20 * _SLOW_CALLS:
                return lines
    return lines


def _failures(job: Json, now_ms: int, zone: tzinfo | None) -> Iterator[str]:
    shown = job["exceptions"][-_FAILURES:]
    if len(job["exceptions"]) > len(shown):
        yield f"  the last {len(shown)} of {len(job['exceptions'])}"
    for failure in shown:
        what = "a task has failed, and ran again"
        if not failure["retried"]:
            delay_ms = failure["restart_delay_ms"]
            what = "the job has failed" if delay_ms is None else f"the job was restarted after {duration(delay_ms)}"
        yield f"  {time_and_age(failure['time_ms'], now_ms, zone)}, attempt {failure['attempt']}: {what}"
        yield f"    {failure['error_class']}: {one_line(failure['message'], 4_000)}"
        if failure["place"]:
            yield f"    in {one_line(failure['place'])}"
    if shown and shown[-1]["traceback"]:
        yield from _indented(shown[-1]["traceback"])


def _indented(text: str) -> list[str]:
    return [f"      {escaped(line)}" for line in text.rstrip().split("\n")]


def _accumulators(job: Json) -> list[str]:
    rows = list(job["accumulators"].items())[:_ACCUMULATORS]
    if not rows:
        return []
    shown = [(name, number(value) if isinstance(value, (int, float)) else value) for name, value in rows]
    return table(("name", "value"), shown)


def _lifecycle(job: Json, zone: tzinfo | None) -> list[str]:
    rows = [
        (time(call["time_ms"], zone), call["task"], call["operator"], call["call"], call["epoch"], call["pid"])
        for call in job.get("lifecycle", ())[-_CALLS:]
    ]
    return table(("time", "task", "operator", "call", " epoch", " process"), rows) if rows else []


def _events(job: Json, now_ms: int, zone: tzinfo | None) -> list[str]:
    return [
        f"  {time_and_age(event['time_ms'], now_ms, zone)}: {one_line(event['subject'])}: {event['after']}"
        + (f" ({one_line(event['cause'], 300)})" if event["cause"] else "")
        for event in job["story"][-_EVENTS:]
    ]
