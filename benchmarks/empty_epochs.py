"""What an epoch without data costs, with 1 to 3 stateful operators in a row: median milliseconds from epoch to epoch,
and those of the processors, which depend less on who else uses the machine.

Bare: a Structured Streaming query by hand, `rate-micro-batch` with one row a batch. flinkish's own rows come from
`benchmarks.pipelines.flinkish_empty_epochs`. Each count of operators runs in one process
with the same settings (`benchmarks.spark_settings`); the epochs to warm up are left out.

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
"""Groups that each operator is called for, as many as subtasks of the flinkish job."""


def pass_on(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """A stateful operator that counts its epochs and hands the row on."""
    state.update(((state.get[0] if state.exists else 0) + 1,))
    yield from frames


def bare_query(spark: Any, operators: int) -> Any:
    """One row a batch, sent to SUBTASKS groups through `operators` stateful operators."""
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
    """When the epochs of a query ended, and what the processors did meanwhile. Those that warm it up do not count."""

    def __init__(self, warm_up: int) -> None:
        self.ended_s: list[float] = []
        self._warm_up = warm_up
        self._processors_s: float | None = None

    def add(self) -> None:
        """An epoch has ended."""
        self.ended_s.append(time.perf_counter())
        if len(self.ended_s) == self._warm_up + 1:
            self._processors_s = contract.tree_cpu_s(os.getpid())

    def figures(self, steps: dict[str, float]) -> dict[str, Any]:
        """Median, shortest and longest, the steps, and the processors' time per epoch."""
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
    """What Spark says of a query's epochs: the median milliseconds of each of their steps. Most of `addBatch` is the
    job with its stages; `triggerExecution` is all of an epoch."""
    epochs = [progress["durationMs"] for progress in stream.recentProgress if "addBatch" in progress["durationMs"]]
    names = dict.fromkeys(itertools.chain.from_iterable(epochs[warm_up:]))
    return {name: statistics.median(epoch.get(name, 0) for epoch in epochs[warm_up:]) for name in names}


def argument_parser() -> argparse.ArgumentParser:
    """The options of this module and of flinkish's twin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=15)
    return parser


def main() -> None:
    """Measure the bare query and print one line of JSON: figures per count of operators."""
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
