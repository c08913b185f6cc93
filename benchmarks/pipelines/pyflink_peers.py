"""Programs of `peer_programs` in PyFlink, one after the other in one interpreter; prints a line of JSON for each.

Steady: the difference between a run over few clicks and one over more, whose figures are compared. The first program
runs one additional time at the beginning, to start the JVM.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from pyflink.datastream import FilterFunction

from benchmarks import contract, data
from benchmarks.pipelines import peer_programs, pyflink_job

STATE_CACHE_SIZE = 100_000
"""Entries of states and windows cached on the Python side: enough for all entries of 1,000 users."""
#: The shorter run has one in this many events.
SHORTER = 6


class FiguresSink(FilterFunction):  # type: ignore[misc]
    """Adds up the results in the Python worker and emits nothing; saves the figures at the end."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._figures = peer_programs.Figures()

    def filter(self, value: Any) -> bool:
        """Take one result."""
        figures = self._figures
        figures.rows += 1
        figures.count += value[2]
        figures.amount += value[3]
        if value[3] > figures.highest:
            figures.highest = value[3]
        return False

    def close(self) -> None:
        """Save the figures."""
        Path(self._directory, f"{uuid.uuid4().hex}.json").write_text(json.dumps(self._figures.as_tuple()))


def run(mode: str, name: str, paths: list[Path], events: int) -> tuple[float, peer_programs.Figures]:
    """Run a program over this many clicks: seconds, and the figures of its results."""
    with tempfile.TemporaryDirectory() as directory:
        env = pyflink_job.environment(mode, STATE_CACHE_SIZE)
        stream = pyflink_job.clicks(env, peer_programs.COLUMNS, paths, events)
        results = peer_programs.add("pyflink", name, stream, data.JITTER_MS)
        results.filter(FiguresSink(directory)).print()
        started = time.perf_counter()
        env.execute(name)
        seconds = time.perf_counter() - started
        figures = peer_programs.Figures()
        for path in Path(directory).glob("*.json"):
            figures.merge(json.loads(path.read_text()))
    return seconds, figures


def measure(mode: str, name: str, paths: list[Path], events: int) -> dict[str, Any]:
    """The figures of one program."""
    program = peer_programs.PROGRAMS[name]
    events = program.events(events)
    few = max(pyflink_job.SLICE_EVENTS, events // SHORTER // pyflink_job.SLICE_EVENTS * pyflink_job.SLICE_EVENTS)
    short_s, _ = run(mode, name, paths, few)
    long_s, figures = run(mode, name, paths, events)
    return contract.peer_figures(events - few, long_s - short_s, figures.chosen(program.figures))


def main() -> None:
    """Run the programs."""
    parser = contract.peer_parser("PyFlink")
    parser.add_argument("--mode", choices=("process", "thread"), default="process")
    options = parser.parse_args()
    pyflink_job.find_packages_in_thread_mode()
    paths = list(data.ensure(data.USERS[0], -(-options.events // data.EVENTS), options.data).paths)
    run(options.mode, "stateless", paths, pyflink_job.SLICE_EVENTS)
    for name in options.programs:
        contract.emit_peer(name, lambda name=name: measure(options.mode, name, paths, options.events))  # type: ignore[misc]


if __name__ == "__main__":
    main()
