"""The cost of an epoch without data, with 1 to 3 stateful operators in a row: median milliseconds from epoch to epoch,
and milliseconds of processor time, which depend less on other users of the machine.

Bare: a Structured Streaming query written by hand, `rate-micro-batch` with one row per batch. flinkish's rows come from
`benchmarks.pipelines.flinkish_empty_epochs`. Each number of operators runs in one process
with the same settings (`benchmarks.spark_settings`); warm-up epochs are excluded.

    python -m benchmarks.empty_epochs [--operators 1 2 3] [--epochs 40] [--warm-up 15]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import contract, spark_settings

SUBTASKS = 2
"""Number of groups for which each operator is called: the number of subtasks of the flinkish job."""


def pass_on(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """A stateful operator that counts its epochs and passes the row on."""
    state.update(((state.get[0] if state.exists else 0) + 1,))
    yield from frames


def bare_query(spark: Any, operators: int) -> Any:
    """One row per batch, sent to SUBTASKS groups through `operators` stateful operators."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    frame = rows.selectExpr(f"explode(sequence(0, {SUBTASKS - 1})) as subtask", "cast('' as binary) as buffer")
    for _ in range(operators):
        frame = frame.groupBy("subtask").applyInPandasWithState(
            pass_on, "subtask int, buffer binary", "epochs long", "append", "NoTimeout"
        )
        # Spark 4.2 needs a real projection between two stateful operators.
        frame = frame.selectExpr("subtask & 2147483647 as subtask", "buffer")
    return frame


def bare_epochs_ms(spark: Any, operators: int, epochs: int, warm_up: int) -> dict[str, Any]:
    """Run one query for `warm_up + epochs` epochs: median, shortest and longest milliseconds from epoch to epoch."""
    ends = EpochEnds(warm_up)

    def deliver(frame: Any, _: int) -> None:
        frame.collect()
        ends.add()

    with tempfile.TemporaryDirectory() as directory:
        stream = (
            bare_query(spark, operators)
            .writeStream.outputMode("append")
            .foreachBatch(deliver)
            .option("checkpointLocation", directory)
            .start()
        )
        try:
            while len(ends.ended_s) < warm_up + epochs + 1:
                if stream.awaitTermination(0.1):
                    raise RuntimeError(f"the bare query ended after {len(ends.ended_s)} epochs: {stream.exception()}")
            return ends.figures(steps_ms(stream, warm_up))
        finally:
            stream.stop()


class EpochEnds:
    """Records when the epochs of a query ended, and the processor time meanwhile. Warm-up epochs do not count."""

    def __init__(self, warm_up: int) -> None:
        self.ended_s: list[float] = []
        self._warm_up = warm_up
        self._processors_s: float | None = None

    def add(self) -> None:
        """Record the end of an epoch."""
        self.ended_s.append(time.perf_counter())
        if len(self.ended_s) == self._warm_up + 1:
            self._processors_s = contract.tree_cpu_s(os.getpid())

    def figures(self, steps: dict[str, float]) -> dict[str, Any]:
        """Median, shortest and longest epoch, the steps, and the processor time per epoch."""
        processors_s, counted = contract.tree_cpu_s(os.getpid()), len(self.ended_s) - self._warm_up - 1
        epochs_ms = [1000 * (later - earlier) for earlier, later in itertools.pairwise(self.ended_s)][self._warm_up :]
        if processors_s is not None and self._processors_s is not None:
            steps = {**steps, "(processors)": round(1000 * (processors_s - self._processors_s) / counted, 1)}
        return {
            "median_ms": round(statistics.median(epochs_ms), 1),
            "shortest_ms": round(min(epochs_ms), 1),
            "longest_ms": round(max(epochs_ms), 1),
            "steps_ms": steps,
        }


def steps_ms(stream: Any, warm_up: int) -> dict[str, float]:
    """The median milliseconds of each step of a query's epochs, as Spark reports them. Most of `addBatch` is the job
    with its stages; `triggerExecution` is the whole epoch."""
    epochs = [progress["durationMs"] for progress in stream.recentProgress if "addBatch" in progress["durationMs"]]
    names = dict.fromkeys(itertools.chain.from_iterable(epochs[warm_up:]))
    return {name: statistics.median(epoch.get(name, 0) for epoch in epochs[warm_up:]) for name in names}


def argument_parser() -> argparse.ArgumentParser:
    """The options of this module and of its flinkish counterpart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=15)
    return parser


def main() -> None:
    """Measure the bare query and print one line of JSON: figures per number of operators."""
    options = argument_parser().parse_args()
    spark = spark_settings.session("empty epochs")
    measured = {
        str(operators): bare_epochs_ms(spark, operators, options.epochs, options.warm_up)
        for operators in options.operators
    }
    spark.stop()
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
