"""Jobs over every source, started again and again on other clusters; each start but the last one fails in an epoch.

    python replayed_job.py '{"folder": ..., "clusters": ["local[2]", ...], "sources": ["text", ...], "kafka": ...}'

The first cluster fails in epoch 0, the second one replays it and fails in epoch 1, and so on; the last one goes on to
the end. A cluster is a master, or ``["executors", 2]``. What each subtask was given lies in
``folder/digests/<source>/<start>`` then, and the records that were put out are compared with what they should be.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flinkish.common.serialization import SimpleStringSchema
from flinkish.common.time import Duration
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import CollectionSource, DataGeneratorSource, NumberSequenceSource
from flinkish.connectors.spark import DeltaSource
from flinkish.core.source import Source
from flinkish.errors import FlinkishError
from tests.integration.engine.collecting import collecting, environment
from tests.support import epoch_digests
from tests.support.epoch_digests import KeyedRecorder, Recorder

RECORDS, PER_EPOCH, PARALLELISM, KEYS = 600, 90, 3, 7
TOPIC, PARTITIONS = "replayed", 4
ROW = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])

#: Sizes of the files that hold the records; no two subtasks have as much to read. There are so many that files which
#: are read within one epoch (CSV with quotes) take as many epochs as the job has starts.
FILES = [90, 60, 10, 50, 30, 1, 70, 50, 80, 33, 26, 40, 20, 15, 25]


def number_of(value: Any) -> int:
    """The number that a record of any source carries."""
    if isinstance(value, int):
        return value
    return int(value.split(",")[0]) if isinstance(value, str) else int(value[0])


class EventTime(TimestampAssigner):
    """Time rises with the numbers, and not in order."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        number = number_of(value)
        return number * 100 + number * 37 % 11 * 50


def parts() -> list[list[int]]:
    """The numbers in each file."""
    found, start = [], 0
    for size in FILES:
        found.append(list(range(start, start + size)))
        start += size
    assert start == RECORDS
    return found


def files(folder: Path, kind: str, write: Callable[[Path, list[int]], None]) -> str:
    """Files in the order of their numbers."""
    directory = folder / kind
    if not directory.exists():
        directory.mkdir(parents=True)
        for place, numbers in enumerate(parts()):
            path = directory / f"{(place * 7) % len(FILES)}.{kind}"
            write(path, numbers)
            os.utime(path, (1_700_000_000 + place, 1_700_000_000 + place))
    return str(directory)


def _text(path: Path, numbers: list[int]) -> None:
    path.write_text("".join(f"{n},line {n}\n" for n in numbers))


def _csv(path: Path, numbers: list[int]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows((n, f'a "quoted" {n}') for n in numbers)


def _json(path: Path, numbers: list[int]) -> None:
    path.write_text("".join(json.dumps({"n": n, "text": f"object {n}"}) + "\n" for n in numbers))


def _parquet(path: Path, numbers: list[int]) -> None:
    pq.write_table(pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]}), path, row_group_size=37)


def _delta(folder: Path) -> str:
    """A table of 24 files, in several versions."""
    from pyspark.sql import SparkSession

    path, spark = folder / "delta", SparkSession.active()
    if not path.exists():
        for version in range(4):
            numbers = [(n, f"version {version} {n}") for n in range(RECORDS) if n * 4 // RECORDS == version]
            frame = spark.createDataFrame(numbers, "n LONG, text STRING").repartition(6)
            frame.write.format("delta").mode("append").save(str(path))
    return str(path)


def _kafka(servers: str) -> Source:
    from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
    from flinkish.connectors.kafka.source import KafkaSource

    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(TOPIC)
    builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
    return builder.set_value_only_deserializer(SimpleStringSchema()).build()


def fill_topic(broker: Any) -> None:
    """Unevenly."""
    broker.create_topic(TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        numbers = [n for n in range(RECORDS) if n * n % 10 % PARTITIONS == partition]
        broker.produce(TOPIC, [f"{n},record {n}" for n in numbers], partition=partition)


def source_of(name: str, folder: Path, kafka: str | None) -> Source:
    """A source of the numbers from 0."""
    sources: dict[str, Callable[[], Source]] = {
        "collection": lambda: CollectionSource([(n, f"value {n}") for n in range(RECORDS)]),
        "sequence": lambda: NumberSequenceSource(0, RECORDS - 1, splits=5),
        "generator": lambda: DataGeneratorSource(lambda n: (n, f"made {n}"), RECORDS, splits=4),
        "text": lambda: FileSource.text(files(folder, "text", _text)),
        "csv": lambda: FileSource.csv(files(folder, "csv", _csv), type_info=ROW),
        "json": lambda: FileSource.json(files(folder, "json", _json), type_info=ROW),
        "parquet": lambda: FileSource.parquet(files(folder, "parquet", _parquet), type_info=ROW),
        "delta": lambda: DeltaSource(_delta(folder), ROW, bounded=True, options={"maxFilesPerTrigger": "5"}),
        "kafka": lambda: _kafka(str(kafka)),
    }
    return sources[name]()


def run(name: str, options: dict[str, Any], start: int, failing_epoch: int | None, sink: Any) -> None:
    """Start the job of a source once."""
    folder = Path(options["folder"])
    digests = folder / "digests" / name / f"{options['name']}-{start}"
    epoch_digests.plan_run(Path(os.environ[epoch_digests.PLAN_VARIABLE]), failing_epoch)
    env = environment(
        folder / f"job-{options['name']}-{name}",
        flinkish__epoch__max_records_per_source=PER_EPOCH,
        flinkish__source__batch_size=16,
        parallelism__default=PARALLELISM,
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(300))
    source = source_of(name, folder, options.get("kafka"))
    read = env.from_source(source, strategy.with_timestamp_assigner(EventTime()), name).uid(name)
    read = read.process(Recorder("source", digests)).uid("given by the source")
    balanced = read.rebalance().process(Recorder("subtask", digests)).uid("given to subtasks")
    read.key_by(lambda value: number_of(value) % KEYS).process(KeyedRecorder(digests)).uid("given to key groups")
    balanced.map(number_of).sink_to(sink).uid("numbers")
    try:
        env.execute(name)
    except FlinkishError as error:
        if failing_epoch is None or f"epoch {failing_epoch} fails as planned" not in str(error):
            raise
    else:
        assert failing_epoch is None, f"{name} had no epoch {failing_epoch}"


def main(options: dict[str, Any]) -> None:
    """All starts of all jobs."""
    from tests.support.local_cluster import spark_home, start_cluster_session
    from tests.support.spark_session import start_session

    folder = Path(options["folder"])
    # the one Java process of this driver looks at it, whichever cluster needs it
    os.environ["SPARK_HOME"] = str(spark_home(folder))
    with collecting() as collected:
        for start, cluster in enumerate(options["clusters"]):
            if isinstance(cluster, str):
                session = start_session(folder, cluster)
            else:
                session = start_cluster_session(folder, cluster[1], extra={"spark.task.maxFailures": "1"})
            for name in options["sources"]:
                last = start == len(options["clusters"]) - 1
                run(name, options, start, None if last else start, collected.sink(name))
                print(f"{name}: started on {cluster}", flush=True)
            session.stop()
        for name in options["sources"]:
            counts = Counter(collected.rows[name])
            assert counts == Counter(range(RECORDS)), f"{name}: {counts - Counter(range(RECORDS))} too many"
    print("finished", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
