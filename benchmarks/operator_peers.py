"""The operators that PyFlink has as well, beside PyFlink: the same small programs in three engines, and a table.

    python -m benchmarks.operator_peers [--pyflink-python PATH] [--only NAME ...] [--events N] [--json FILE]

The programs are those of `benchmarks/pipelines/peer_programs.py`, without the operators that `python -m benchmarks`
compares. An engine runs all programs in one process, one after the other; start-up is subtracted by a shorter run. If
engines disagree, the command ends with code 1. If an engine ends early or takes too long for a program, that
program has no figure, and the engine goes on with the next one in a new process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data, runner
from benchmarks.pipelines.peer_programs import PROGRAMS

FLINKISH = "flinkish"
PYFLINK_MODES = ("PyFlink process", "PyFlink thread")


@dataclass(frozen=True)
class PeerEngine:
    """How to run the programs in one engine: its module, and the package that shows that it is installed."""

    name: str
    module: str
    package: str
    python: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """The result of one engine for one program: figures, or the reason why there are none."""

    events_per_s: float | None = None
    check: dict[str, Any] | None = None
    reason: str = ""


def engines(pyflink_python: str) -> list[PeerEngine]:
    """flinkish, and PyFlink in its two modes."""
    modes = [
        PeerEngine(name, "benchmarks.pipelines.pyflink_peers", "pyflink", pyflink_python, ("--mode", name.split()[1]))
        for name in PYFLINK_MODES
    ]
    return [PeerEngine(FLINKISH, "benchmarks.pipelines.flinkish_peers", "pyspark", sys.executable), *modes]


def argument_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operator_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pyflink-python", default=os.environ.get("BENCHMARKS_PYFLINK_PYTHON", sys.executable))
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), metavar="NAME", default=list(PROGRAMS))
    parser.add_argument("--engines", nargs="+", choices=[FLINKISH, *PYFLINK_MODES], metavar="NAME")
    parser.add_argument("--events", type=_events, default=300_000, help="of the runs whose results are compared")
    parser.add_argument("--data", type=Path, default=data.default_directory(), help="where the events are kept")
    parser.add_argument("--timeout-s", type=float, default=150.0, help="for all runs of one program in one engine")
    parser.add_argument("--json", type=Path, help="write all figures to this file as well")
    return parser


def _events(text: str) -> int:
    events = int(text)
    if events <= 0 or events % data.EVENTS_PER_FILE:
        raise argparse.ArgumentTypeError(f"{text} is no multiple of {data.EVENTS_PER_FILE}: files are read as a whole")
    return events


def measure(engine: PeerEngine, options: argparse.Namespace) -> dict[str, Cell]:
    """The cells of one engine by program name."""
    if not runner.is_installed(engine.python, engine.module, engine.package):
        return {name: Cell(reason="not installed") for name in options.only}
    cells: dict[str, Cell] = {}
    while left := [name for name in options.only if name not in cells]:
        arguments = ["--events", str(options.events), "--data", str(options.data), *engine.arguments]
        found, reason = _run(engine, [*arguments, "--programs", *left], options.timeout_s)
        cells.update(found)
        unfinished = [name for name in left if name not in cells]
        if unfinished:
            cells[unfinished[0]] = Cell(reason=reason)
            print(f"... {engine.name}: {unfinished[0]}: {reason}", file=sys.stderr, flush=True)
    return cells


def _run(engine: PeerEngine, arguments: list[str], timeout_s: float) -> tuple[dict[str, Cell], str]:
    """The cells that one process of the engine printed until it ended, and why there are no more."""
    cells: dict[str, Cell] = {}
    reason = ""
    with tempfile.TemporaryFile("w+") as errors:
        process = runner.start(engine.python, engine.module, arguments, errors)
        too_late = threading.Event()

        def stop() -> None:
            too_late.set()
            os.killpg(process.pid, signal.SIGKILL)

        assert process.stdout is not None
        timer = _started(stop, timeout_s)
        try:
            for line in process.stdout:
                if not line.startswith('{"program"'):
                    continue
                timer.cancel()
                figures = json.loads(line)
                cells[figures["program"]] = cell = _cell(figures)
                said = cell.reason or f"{cell.events_per_s:,.0f} events/s"
                print(f"... {engine.name}: {figures['program']}: {said}", file=sys.stderr, flush=True)
                timer = _started(stop, timeout_s)
            process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                # the benchmark was interrupted
                os.killpg(process.pid, signal.SIGKILL)
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["no output"])[-1]
        reason = f"ended with code {process.returncode}: {last[:200]}"
    return cells, f"not at its end after {timeout_s:.0f} s" if too_late.is_set() else reason


def _started(stop: Any, after_s: float) -> threading.Timer:
    timer = threading.Timer(after_s, stop)
    timer.daemon = True
    timer.start()
    return timer


def _cell(figures: dict[str, Any]) -> Cell:
    if "reason" in figures:
        return Cell(reason=figures["reason"])
    if figures["seconds"] <= 0:
        return Cell(check=figures["check"], reason="the longer run was the faster one: more --events")
    return Cell(round(figures["events"] / figures["seconds"], 1), figures["check"])


def ratio(cells: dict[str, Cell]) -> float | None:
    """The speed of flinkish relative to the faster mode of PyFlink; None if one of them has no figure."""
    own = cells[FLINKISH].events_per_s if FLINKISH in cells else None
    others = [cells[name].events_per_s for name in PYFLINK_MODES if name in cells]
    best = max((figure for figure in others if figure), default=None)
    return own / best if own and best else None


def agreement(cells: dict[str, Cell]) -> str:
    """Whether the engines that have results agree."""
    checks = {name: json.dumps(cell.check, sort_keys=True) for name, cell in cells.items() if cell.check is not None}
    if len(checks) < 2:
        return "-"
    if len(set(checks.values())) == 1:
        return "agree"
    return "DIFFER: " + "; ".join(f"{name}: {check}" for name, check in checks.items())


def table(rows: dict[str, dict[str, Cell]]) -> list[str]:
    """A line per program, and below it the reasons for cells without a figure."""
    names = (FLINKISH, *PYFLINK_MODES)
    lines = [f"{'operator':<20}" + "".join(f"{name:>18}" for name in names) + f"{'ratio':>8}  results"]
    reasons = []
    for program, cells in rows.items():
        figures = [cells[name].events_per_s if name in cells else None for name in names]
        times = ratio(cells)
        lines.append(
            f"{program:<20}"
            + "".join(f"{'-' if figure is None else f'{figure:,.0f}':>18}" for figure in figures)
            + f"{'-' if times is None else f'{times:.1f}x':>8}  {agreement(cells)}"
        )
        reasons += [f"  {program}, {name}: {cell.reason}" for name, cell in cells.items() if cell.reason]
    return [*lines, *(["", "no figure:"] if reasons else []), *reasons]


def main() -> None:
    """Measure and print the table."""
    options = argument_parser().parse_args()
    chosen = [one for one in engines(options.pyflink_python) if not options.engines or one.name in options.engines]
    measured = {engine.name: measure(engine, options) for engine in chosen}
    rows = {program: {engine: cells[program] for engine, cells in measured.items()} for program in options.only}
    print("events/s; ratio: flinkish to the better mode of PyFlink")
    print("\n".join(table(rows)))
    if options.json:
        plain = {program: {name: vars(cell) for name, cell in cells.items()} for program, cells in rows.items()}
        options.json.write_text(json.dumps(plain, indent=1))
    if any(agreement(cells).startswith("DIFFER") for cells in rows.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
