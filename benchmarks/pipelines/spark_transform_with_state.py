"""Structured Streaming by hand with `transformWithState` per key, state in RocksDB: what Spark 4.2 itself offers.

Twenty files of events, two million, are one micro-batch, which costs less per event, as there are fewer calls per user.
Steady: the batches after the warm-up. With `--keys` it takes the records of
`benchmarks.keyed_state` instead of events and prints the seconds of each batch of random keys.
"""

from __future__ import annotations

import json
import os
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks import contract, spark_settings
from benchmarks.data import EVENTS_PER_FILE
from benchmarks.keyed_records import LOAD_EPOCHS, key_numbers, sums_at, user_names

FILES_PER_BATCH = 20
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class RunningSum(StatefulProcessor):
    """Add the batch's records of one user to the sum in the state; one row, the last value."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value per user."""
        self._total = handle.getValueState("total", "user_id string, total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """One call per user and batch."""
        old = self._total.get()
        total = (old[1] if old is not None else 0) + sum(row.one for row in rows)
        self._total.update((key[0], total))
        yield Row(user_id=key[0], total=total)


class Driver:
    """The query's sink: collects the output in a dictionary, and sets a mark after each batch."""

    def __init__(self, meter: contract.Meter, batch_records: int = 0) -> None:
        self._meter = meter
        self._batch_records = batch_records
        self.marks = [meter.mark(0)]
        self.totals: dict[str, int] = {}
        self.sum_of_batch = 0

    def deliver(self, frame: Any, batch_id: int) -> None:
        """`foreachBatch`: upsert the batch's rows."""
        users, totals = (column.to_pylist() for column in frame.toArrow().columns)
        self.totals.update(zip(users, totals, strict=True))
        self.sum_of_batch = sum(totals)
        self.marks.append(self._meter.mark((batch_id + 1) * self._batch_records))


def run(ones: Any, driver: Driver, checkpoint: str) -> None:
    """Keep the running sums of a stream of (user_id, one) until it has no more files."""
    sums = ones.groupBy("user_id").transformWithState(
        RunningSum(), "user_id string, total long", outputMode="Update", timeMode="None"
    )
    writer = sums.writeStream.outputMode("update").foreachBatch(driver.deliver)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def running_sum(spark: Any, options: Namespace, folder: Path) -> contract.Result:
    """The pipeline `sum` of `python -m benchmarks`."""
    # links, so that the stream reads exactly the requested files
    files = folder / "files"
    files.mkdir()
    paths = contract.files_of(options)
    if len(paths) % FILES_PER_BATCH:
        raise SystemExit(f"{len(paths)} files: expected a multiple of {FILES_PER_BATCH}, for batches of one size")
    for path in paths:
        (files / path.name).symlink_to(path)
    meter = contract.Meter()
    driver = Driver(meter, FILES_PER_BATCH * EVENTS_PER_FILE)
    schema = "user_id string, logged_in boolean"
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(files))
    run(events.where("logged_in").selectExpr("user_id", "1L as one"), driver, str(folder / "checkpoint"))
    steady = f"after {options.warm_up} batches"
    check = contract.sum_check(driver.totals)
    return meter.result(driver.marks[options.warm_up], driver.marks[len(paths) // FILES_PER_BATCH], steady, check)


def random_keys(spark: Any, options: Namespace, folder: Path) -> dict[str, Any]:
    """Seconds per batch of records on random keys, after every key was added once."""
    files = folder / "files"
    files.mkdir()
    load = max(1, options.keys // LOAD_EPOCHS)
    ends = [*range(load, options.keys, load), options.keys]
    ends += [options.keys + (n + 1) * options.records for n in range(options.warm_up + options.epochs)]
    for number, (start, stop) in enumerate(zip([0, *ends], ends)):
        users = user_names(key_numbers(start, stop, options.keys))
        path = files / f"{number:05d}.parquet"
        pq.write_table(pa.table({"user_id": users}), path)
        os.utime(path, (number, number))  # the source reads files in order of modification time
    driver = Driver(contract.Meter())
    records = spark.readStream.schema("user_id string").option("maxFilesPerTrigger", 1).parquet(str(files))
    run(records.selectExpr("user_id", "1L as one"), driver, str(folder / "checkpoint"))
    if driver.sum_of_batch != sums_at(ends[-1], options.records, options.keys):
        raise RuntimeError(f"the last batch brought sums of {driver.sum_of_batch}")
    times_s = [mark.wall_s for mark in driver.marks]
    durations = [after - before for before, after in zip(times_s, times_s[1:])]
    return {"epochs_s": {options.records: durations[-options.epochs :]}}


def main() -> None:
    """Run one pipeline and print its figures."""
    parser = contract.argument_parser(__doc__ or "")
    parser.add_argument("--warm-up", type=int, default=1, help="batches before the first mark")
    parser.add_argument("--keys", type=int, help="records on random keys, of so many")
    parser.add_argument("--records", type=int, default=10_000, help="in a batch of random keys")
    parser.add_argument("--epochs", type=int, default=10, help="batches of random keys")
    options = parser.parse_args()
    spark_settings.SETTINGS["spark.sql.streaming.stateStore.providerClass"] = _PROVIDER
    spark = spark_settings.session("transformWithState")
    with tempfile.TemporaryDirectory() as directory:
        if options.keys:
            print(json.dumps(random_keys(spark, options, Path(directory))), flush=True)
        else:
            contract.emit(running_sum(spark, options, Path(directory)))
        spark.stop()


if __name__ == "__main__":
    main()
