"""What an epoch without data costs: median milliseconds per epoch with 1 to 3 stateful operators in a row.

Bare: a Structured Streaming query by hand, `rate-micro-batch` with one row a batch. flinkish's own rows come from
`benchmarks.pipelines.flinkish_empty_epochs`. Each count of operators runs in one process
with the same settings (`benchmarks.spark_settings`); the epochs to warm up are left out.

    python -m benchmarks.empty_epochs [--operators 1 2 3] [--epochs 40] [--warm-up 15]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import spark_settings

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
    ended_s: list[float] = []

    def deliver(frame: Any, _: int) -> None:
        frame.collect()
        ended_s.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as directory:
        stream = (
            bare_query(spark, operators)
            .writeStream.outputMode("append")
            .foreachBatch(deliver)
            .option("checkpointLocation", directory)
            .start()
        )
        try:
            while len(ended_s) < warm_up + epochs + 1:
                if stream.awaitTermination(0.1):
                    raise RuntimeError(f"the bare query ended after {len(ended_s)} epochs: {stream.exception()}")
            steps = steps_ms(stream, warm_up)
        finally:
            stream.stop()
    return figures([1000 * (later - earlier) for earlier, later in itertools.pairwise(ended_s)][warm_up:], steps)


def steps_ms(stream: Any, warm_up: int) -> dict[str, float]:
    """What Spark says of a query's epochs: the median milliseconds of each of their steps. Most of `addBatch` is the
    job with its stages; `triggerExecution` is all of an epoch."""
    epochs = [progress["durationMs"] for progress in stream.recentProgress if "addBatch" in progress["durationMs"]]
    names = dict.fromkeys(itertools.chain.from_iterable(epochs[warm_up:]))
    return {name: statistics.median(epoch.get(name, 0) for epoch in epochs[warm_up:]) for name in names}


def figures(epochs_ms: list[float], steps: dict[str, float]) -> dict[str, Any]:
    """Median, shortest and longest, and the steps."""
    return {
        "median_ms": round(statistics.median(epochs_ms), 1),
        "shortest_ms": round(min(epochs_ms), 1),
        "longest_ms": round(max(epochs_ms), 1),
        "steps_ms": steps,
    }


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
