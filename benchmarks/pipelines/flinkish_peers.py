"""Programs of `peer_programs` in flinkish on Spark, one after the other in one session; prints a line of JSON for each.

Each program runs twice: over as many clicks as the other engines get, for the figures that are compared, and then over
more clicks. Steady is the part of the second run from the end of its first epoch to the end of its last one. The first
program runs one additional time at the beginning, to start Spark.
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
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport

EPOCH_RECORDS = 500_000


class Epochs(JobObserver):
    """Records when each epoch of a job was done, and the number of records that it read."""

    def __init__(self) -> None:
        self.done: list[tuple[float, int]] = []

    def epoch_done(self, report: EpochReport) -> None:
        """Called after each epoch."""
        self.done.append((time.perf_counter(), report.records_in))


def run(name: str, paths: list[Path], job_name: str) -> list[tuple[float, int]]:
    """Run a program over the clicks of these files: (time of its end, number of records) of each epoch."""
    env = environment(EPOCH_RECORDS)
    peer_programs.add("flinkish", name, clicks(env, peer_programs.COLUMNS, paths), BOUND_MS).sink_to(FiguresSink())
    epochs = Epochs()
    client = env.execute_async(job_name)
    client.run.observers.append(epochs)  # type: ignore[attr-defined]
    client.get_job_execution_result().result()
    return epochs.done


def measure(name: str, events: int, paths: list[Path]) -> dict[str, Any]:
    """The figures of one program; those of the run over the first ``events`` clicks are compared."""
    program = peer_programs.PROGRAMS[name]
    short = in_a_folder(paths[: program.events(events) // data.EVENTS_PER_FILE])
    run(name, short, f"{name}-short")
    shutil.rmtree(short[0].parent)
    epochs = run(name, paths, f"{name}-long")
    steady_events = sum(records for _, records in epochs[1:])
    seconds = epochs[-1][0] - epochs[0][0]
    figures = committed[f"{name}-short"].chosen(program.figures)
    return contract.peer_figures(steady_events, seconds, figures)


def main() -> None:
    """Run the programs."""
    parser = contract.peer_parser("flinkish")
    parser.add_argument("--long-events", type=int, default=2_500_000, help="of the run whose time is taken")
    options = parser.parse_args()
    events = max(options.events, options.long_events)
    paths = data.ensure(data.USERS[0], -(-events // data.EVENTS), options.data).paths
    long = in_a_folder(list(paths[: events // data.EVENTS_PER_FILE]))
    session("flinkish-operator-peers")
    short = in_a_folder(list(paths[:1]))
    run(options.programs[0], short, "warm-up")
    shutil.rmtree(short[0].parent)
    for name in options.programs:
        contract.emit_peer(name, lambda name=name: measure(name, options.events, long))  # type: ignore[misc]
    shutil.rmtree(long[0].parent)


if __name__ == "__main__":
    main()
