"""The interface of all pipeline modules, their options and their output, so that one runner can compare all engines.

Rule of this file: a pipeline is a module run as `python -m benchmarks.pipelines.NAME --pipeline P --users N ...` in the
engine's own interpreter. It ends with ONE line of JSON on standard output, the fields of `Result`. It imports only the
standard library, numpy, pyarrow and its engine. CPU and memory of the process tree are measured only on Linux
(through /proc); elsewhere these fields are null.

"Steady" is the part between two `Mark`s: from the end of start-up and warm-up to the end of the last event.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import data

BASIC_PIPELINES = ("sum", "window")
KEYED_PIPELINES = ("user_window", "visits", "sliding", "session", "connected", "interval_join")
"""Described in `pipelines/keyed_programs.py`."""
PIPELINES = BASIC_PIPELINES + KEYED_PIPELINES
WINDOW_MS = 60_000


@dataclass(frozen=True)
class Result:
    """One run. `events` are those of the steady part; `check` holds figures that must agree between engines."""

    events: int
    seconds_total: float
    seconds_steady: float
    events_per_s: float
    cpu_s: float | None
    peak_rss_mib: float | None
    steady: str
    """How start-up was subtracted, for human readers."""
    check: dict[str, Any]
    """Figures computed from all events of the run; see `sum_check` and `window_check`."""


@dataclass(frozen=True)
class Mark:
    """A point in the run: wall clock, CPU seconds of the process tree so far, and number of events so far."""

    wall_s: float
    cpu_s: float | None
    events: int


class Meter:
    """Takes marks and watches the memory of the Python processes in this process's tree.

    Example: `meter = Meter()`, `meter.mark(0)` after the warm-up, `meter.mark(2_000_000)` at the end, then
    `meter.result(first, last, "after warm-up", check)`.
    """

    def __init__(self, sample_every_s: float = 0.5) -> None:
        self._started_s = time.perf_counter()
        self._peaks_kib: dict[int, int] = {}
        self._sample_every_s = sample_every_s
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample_until_stopped, daemon=True)
        self._sampler.start()

    def mark(self, events: int) -> Mark:
        """Mark the present moment, with `events` events processed since the start."""
        self._sample()
        return Mark(time.perf_counter(), tree_cpu_s(os.getpid()), events)

    def result(self, first: Mark, last: Mark, steady: str, check: dict[str, Any]) -> Result:
        """The figures of the part between two marks."""
        self._stop.set()
        self._sampler.join()
        self._sample()
        cpu_s = None if first.cpu_s is None or last.cpu_s is None else round(last.cpu_s - first.cpu_s, 3)
        seconds = last.wall_s - first.wall_s
        events = last.events - first.events
        return Result(
            events=events,
            seconds_total=round(time.perf_counter() - self._started_s, 3),
            seconds_steady=round(seconds, 3),
            events_per_s=round(events / seconds, 1),
            cpu_s=cpu_s,
            peak_rss_mib=self.worker_peak_mib(),
            steady=steady,
            check=check,
        )

    def difference(self, start: Mark, between: Mark, end: Mark, check: dict[str, Any]) -> Result:
        """The figures of what the second of two runs did more than the first; start-up is in both and cancels out."""
        cpu_s: float | None = None
        if start.cpu_s is not None and between.cpu_s is not None and end.cpu_s is not None:
            cpu_s = end.cpu_s - 2 * between.cpu_s + start.cpu_s
        last = Mark(
            end.wall_s - 2 * between.wall_s + start.wall_s, cpu_s, end.events - 2 * between.events + start.events
        )
        steady = "a longer run less a shorter one"
        return self.result(Mark(0.0, None if cpu_s is None else 0.0, 0), last, steady, check)

    def worker_peak_mib(self) -> float | None:
        """The highest memory of any Python worker; this process counts only if it has no Python children."""
        workers = {pid: peak for pid, peak in self._peaks_kib.items() if pid != os.getpid()} or self._peaks_kib
        return round(max(workers.values()) / 1024, 1) if workers else None

    def _sample_until_stopped(self) -> None:
        while not self._stop.wait(self._sample_every_s):
            self._sample()

    def _sample(self) -> None:
        for pid in process_tree(os.getpid()):
            peak_kib = _python_peak_kib(pid)
            if peak_kib is not None:
                self._peaks_kib[pid] = max(peak_kib, self._peaks_kib.get(pid, 0))


def in_checkout(checkout: Path) -> dict[str, Any]:
    """The arguments of `subprocess` for a program that runs with the flinkish of a checkout, in its directory as well:
    processes that are started with ``-m`` import first what lies there."""
    return {"cwd": checkout, "env": {**os.environ, "PYTHONPATH": str(checkout), "PYSPARK_PYTHON": sys.executable}}


def process_tree(root: int) -> list[int]:
    """`root` and all its descendants; only `root` where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        fields = stat_fields(entry)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    tree = [root]
    for pid in tree:  # grows while it is iterated
        tree.extend(children.get(pid, []))
    return tree


def tree_cpu_s(root: int) -> float | None:
    """CPU seconds (user and system) of `root`, its living descendants, and the ended ones they have waited for."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks = 0
    for pid in process_tree(root):
        fields = stat_fields(Path(f"/proc/{pid}/stat"))
        ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def stat_fields(path: Path) -> list[str]:
    """The fields after the command (which may hold blanks and brackets): state, parent, ...; empty if it has ended."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _python_peak_kib(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "python" not in fields.get("Name", "") or "VmHWM" not in fields:
        return None
    return int(fields["VmHWM"].split()[0])


def sum_check(totals: dict[str, int]) -> dict[str, Any]:
    """Figures of the last running sum per user: users seen, logged-in clicks, the highest sum."""
    return {"users": len(totals), "clicks": sum(totals.values()), "highest": max(totals.values(), default=0)}


def window_check(windows: int, count: int, amount: float) -> dict[str, Any]:
    """Figures of all windows that fired: how many (page, minute) pairs, their counts and amounts summed."""
    return {"windows": windows, "count": count, "amount": amount}


def argument_parser(description: str) -> argparse.ArgumentParser:
    """The options that every pipeline module takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--pipeline", choices=PIPELINES, required=True)
    parser.add_argument("--users", type=int, default=data.USERS[0])
    parser.add_argument("--data", type=Path, default=data.default_directory())
    parser.add_argument("--files", type=int, default=0, help="take only the first files; 0: all")
    parser.add_argument("--passes", type=int, default=1, help="how often the events are repeated, later each time")
    return parser


def files_of(options: argparse.Namespace) -> list[Path]:
    """The files selected by the options, in event-time order."""
    paths = list(data.ensure(options.users, options.passes, options.data).paths)
    return paths[: options.files] if options.files else paths


def emit(result: Result) -> None:
    """Print the one line that the runner reads."""
    print(json.dumps(asdict(result)), flush=True)


def peer_parser(description: str) -> argparse.ArgumentParser:
    """The options of the modules that run the programs of `pipelines/peer_programs.py`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--programs", nargs="+", required=True, metavar="NAME")
    parser.add_argument("--events", type=int, required=True, help="of the run whose results are compared")
    parser.add_argument("--data", type=Path, default=data.default_directory())
    return parser


def peer_figures(events: int, seconds: float, check: dict[str, Any]) -> dict[str, Any]:
    """The events and seconds of the steady part of one program's run, and figures that must agree."""
    return {"events": events, "seconds": round(seconds, 3), "check": check}


def emit_peer(program: str, measure: Callable[[], dict[str, Any]]) -> None:
    """Print the line of one program: the result of ``measure``, or the reason why there is none."""
    try:
        figures = measure()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        # the JVM's message ends with the root cause
        causes = [line for line in lines if line.startswith("Caused by:")]
        figures = {"reason": (causes or lines[:1])[-1][:200]}
    print(json.dumps({"program": program, **figures}), flush=True)
