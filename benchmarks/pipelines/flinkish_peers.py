"""Programs of `peer_programs` in flinkish on Spark, one after the other in one session: a line of JSON for each.

Steady: a run over as many clicks as the other engines get, whose figures are compared, and a longer run; what the
longer one took more for what it has more. The first program runs once more, before: Spark starts in it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks import contract, data
from benchmarks.pipelines import peer_programs
from benchmarks.pipelines.figures_sink import FiguresSink, committed
from benchmarks.pipelines.flinkish_job import BOUND_MS, clicks, environment, in_a_folder
from benchmarks.spark_settings import session

EPOCH_RECORDS = 1_000_000


def run(name: str, paths: list[Path], job_name: str) -> float:
    """Seconds that a program took over the clicks of these files."""
    env = environment(EPOCH_RECORDS)
    peer_programs.add("flinkish", name, clicks(env, peer_programs.COLUMNS, paths), BOUND_MS).sink_to(FiguresSink())
    started = time.perf_counter()
    env.execute(job_name)
    return time.perf_counter() - started


def measure(name: str, short: list[Path], long: list[Path]) -> dict[str, Any]:
    """The figures of one program."""
    short_s = run(name, short, f"{name}-short")
    long_s = run(name, long, f"{name}-long")
    return contract.peer_figures(
        (len(long) - len(short)) * data.EVENTS_PER_FILE,
        long_s - short_s,
        committed[f"{name}-short"].chosen(peer_programs.PROGRAMS[name].figures),
    )


def main() -> None:
    """Run the programs."""
    parser = contract.peer_parser("flinkish")
    parser.add_argument("--more", type=int, default=2_000_000, help="events that the longer run has more")
    options = parser.parse_args()
    events = options.events + options.more
    paths = data.ensure(data.USERS[0], -(-events // data.EVENTS), options.data).paths[: events // data.EVENTS_PER_FILE]
    long = in_a_folder(list(paths))
    short = in_a_folder(list(paths[: options.events // data.EVENTS_PER_FILE]))
    session("flinkish-operator-peers")
    run(options.programs[0], short, "warm-up")
    for name in options.programs:
        contract.emit_peer(name, lambda name=name: measure(name, short, long))  # type: ignore[misc]
    for folder in (short[0].parent, long[0].parent):
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
