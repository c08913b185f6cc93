"""Reads a source as the engine will: Spark's frame, then the decoder in Python workers, epoch by epoch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from flinkish.connectors.spark import SparkSource
from flinkish.core.source import DataFrameSource, SourceLimits


class Reading:
    """What one run of a query read: the records of each epoch, splits and timestamps, and its last offset."""

    def __init__(self) -> None:
        self.epochs: list[list[Any]] = []
        self.timestamps: list[int] = []
        self.splits: set[str] = set()
        self.end_offset = ""

    @property
    def records(self) -> list[Any]:
        return [record for epoch in self.epochs for record in epoch]


def read(
    spark: SparkSession,
    source: DataFrameSource,
    checkpoint: Path,
    limits: SourceLimits | None = None,
    start: str | None = None,
    between: Callable[[], None] | None = None,
) -> Reading:
    """Run until there is nothing more to read now."""
    reading = Reading()
    source = pickle.loads(pickle.dumps(source)) if not isinstance(source, SparkSource) else source
    decoder = source.decoder()

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            splits = sorted(set(batch.column("__split").to_pylist())) if "__split" in batch.schema.names else []
            pickled = pickle.dumps((*decoder.decode(batch), splits))
            yield pa.RecordBatch.from_pydict({"pickled": [pickled]})

    def take(frame: DataFrame, epoch: int) -> None:
        records: list[Any] = []
        for (pickled,) in frame.mapInArrow(decode, "pickled BINARY").collect():
            values, timestamps, splits = pickle.loads(pickled)
            records += values
            reading.timestamps += timestamps or []
            reading.splits |= set(splits)
        reading.epochs.append(records)

    frame = source.load(spark, limits or SourceLimits(), start)
    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        progress = [
            entry for entry in query.recentProgress if entry["numInputRows"] or entry["sources"][0]["endOffset"]
        ]
        reading.end_offset = progress[-1]["sources"][0]["endOffset"] if progress else ""
    finally:
        query.stop()
    return reading
