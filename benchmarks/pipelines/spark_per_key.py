"""Structured Streaming by hand, with `applyInPandasWithState` per key: the job as written without flinkish.

One file of events is one micro-batch. Steady: the batches after the warm-up. Use part of the data (`--files`): each
group costs about two milliseconds per batch.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import contract, spark_settings
from benchmarks.data import EVENTS_PER_FILE, JITTER_MS

SCHEMA = "user_id string, logged_in boolean, amount double, ts long, page string"


def running_sum(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Add the epoch's clicks of one user to the sum in the state; one row, the last value."""
    total = state.get[0] if state.exists else 0
    for frame in frames:
        total += int(frame["one"].sum())
    state.update((total,))
    yield pd.DataFrame({"user_id": [key[0]], "total": [total]})


def page_windows(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Keep (count, amount) per minute of one page in the state; emit the minutes that the watermark has passed."""
    # As bytes, because Spark 4.2 cannot pass an array type in the state schema to the worker (KeyError: 'elementType').
    found: dict[int, tuple[int, float]] = pickle.loads(state.get[0]) if state.exists else {}
    for frame in frames:
        grouped = frame.groupby(frame["ts"] // contract.WINDOW_MS * contract.WINDOW_MS)["amount"].agg(["count", "sum"])
        for start, count, amount in zip(grouped.index, grouped["count"], grouped["sum"], strict=True):
            old_count, old_amount = found.get(start, (0, 0.0))
            found[start] = (old_count + int(count), old_amount + float(amount))
    watermark_ms = state.getCurrentWatermarkMs()
    closed = sorted(start for start in found if start + contract.WINDOW_MS <= watermark_ms)
    rows = [(key[0], start, *found.pop(start)) for start in closed]
    state.update((pickle.dumps(found),))
    if found:
        state.setTimeoutTimestamp(max(min(found) + contract.WINDOW_MS, watermark_ms + 1))
    yield pd.DataFrame(rows, columns=["page", "start", "count", "amount"])


class Driver:
    """The query's sink: collects the output in a dictionary, and sets a mark after each batch."""

    def __init__(self, meter: contract.Meter, pipeline: str) -> None:
        self._meter = meter
        self._pipeline = pipeline
        self.marks = [meter.mark(0)]
        self.totals: dict[str, int] = {}
        self.windows: dict[tuple[str, int], tuple[int, float]] = {}

    def deliver(self, frame: Any, batch_id: int) -> None:
        """`foreachBatch`: upsert the batch's rows."""
        rows = [column.to_pylist() for column in frame.toArrow().columns]
        if self._pipeline == "sum":
            self.totals.update(zip(*rows, strict=True))
        else:
            pages, starts, counts, amounts = rows
            self.windows.update(zip(zip(pages, starts, strict=True), zip(counts, amounts, strict=True), strict=True))
        self.marks.append(self._meter.mark((batch_id + 1) * EVENTS_PER_FILE))

    def check(self) -> dict[str, Any]:
        """The figures of all output."""
        if self._pipeline == "sum":
            return contract.sum_check(self.totals)
        counts, amounts = zip(*self.windows.values(), strict=True) if self.windows else ((), ())
        return contract.window_check(len(self.windows), sum(counts), sum(amounts))


def query(spark: Any, pipeline: str, files: Path) -> Any:
    """The streaming DataFrame of one pipeline, one file per batch."""
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files))
    if pipeline == "sum":
        ones = events.where("logged_in").selectExpr("user_id", "1L as one")
        return ones.groupBy("user_id").applyInPandasWithState(
            running_sum, "user_id string, total long", "total long", "update", "NoTimeout"
        )
    timed = events.selectExpr("page", "ts", "amount", "timestamp_millis(ts) as time")
    return (
        timed.withWatermark("time", f"{JITTER_MS} milliseconds")
        .groupBy("page")
        .applyInPandasWithState(
            page_windows,
            "page string, start long, count long, amount double",
            "windows binary",
            "append",
            "EventTimeTimeout",
        )
    )


def main() -> None:
    """Run one pipeline and print its figures."""
    parser = contract.argument_parser(__doc__ or "")
    parser.add_argument("--warm-up", type=int, default=1, help="batches before the first mark")
    options = parser.parse_args()
    meter = contract.Meter()
    with tempfile.TemporaryDirectory() as directory:
        # Links, so that the stream reads exactly the requested files.
        files = Path(directory) / "files"
        files.mkdir()
        for path in contract.files_of(options):
            (files / path.name).symlink_to(path)
        spark = spark_settings.session("per key")
        driver = Driver(meter, options.pipeline)
        writer = query(spark, options.pipeline, files).writeStream.outputMode(
            "update" if options.pipeline == "sum" else "append"
        )
        stream = (
            writer.foreachBatch(driver.deliver)
            .option("checkpointLocation", f"{directory}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination()
        batches = len(list(files.iterdir()))
        first, last = driver.marks[options.warm_up], driver.marks[batches]
        result = meter.result(first, last, f"after {options.warm_up} batches", driver.check())
        spark.stop()
    contract.emit(result)


if __name__ == "__main__":
    main()
