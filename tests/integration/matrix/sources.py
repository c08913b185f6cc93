"""The sources of the matrix: each makes its input once, and gives the records of `records`."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from flinkish.common.serialization import SimpleStringSchema
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import CollectionSource, DataGeneratorSource
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.connectors.spark import DeltaSource
from flinkish.core.source import Source
from tests.integration.matrix.records import PARTS, RECORDS, RECORDS_PER_PART, Record, by_part, in_turns
from tests.support.kafka_broker import KafkaBroker

ROW = Types.ROW_NAMED(["part", "number"], [Types.LONG(), Types.LONG()])
KAFKA_PARTITIONS = 3
_SCHEMA = pa.schema([("part", pa.int64()), ("number", pa.int64())])


@dataclass(frozen=True)
class MatrixSource:
    """One kind of source.

    Args:
        make_input: (folder, broker) -> the place of the input: a path or the name of a topic.
        create: (place, addresses of the Kafka servers) -> the source.
        record_of: what the source gives -> a record.
        by_part: one part is read after the other, not side by side.
    """

    make_input: Callable[[Path, KafkaBroker | None], str]
    create: Callable[[str, str], Source]
    record_of: Callable[[object], Record]
    by_part: bool

    def is_behind(self, record: Record, share: float) -> bool:
        """Whether a record belongs to what is read when so great a share of the input has been read."""
        part, number = record
        return part >= PARTS * share if self.by_part else number >= RECORDS_PER_PART * share


def _of_text(text: object) -> Record:
    part, number = str(text).split(",")
    return int(part), int(number)


def _of_row(row: object) -> Record:
    return row.part, row.number  # type: ignore[attr-defined]


def _as_it_is(record: object) -> Record:
    part, number = record  # type: ignore[misc]
    return part, number


def _text_files(folder: Path, broker: KafkaBroker | None) -> str:
    folder.mkdir()
    for part in range(PARTS):
        lines = [f"{part},{number}\n" for number in range(RECORDS_PER_PART)]
        (folder / f"{part}.txt").write_text("".join(lines))
        # the order of files is that of their times
        os.utime(folder / f"{part}.txt", (part, part))
    return str(folder)


def _parquet_files(folder: Path, broker: KafkaBroker | None) -> str:
    folder.mkdir()
    for part in range(PARTS):
        columns = {"part": [part] * RECORDS_PER_PART, "number": range(RECORDS_PER_PART)}
        pq.write_table(pa.table(columns, _SCHEMA), folder / f"{part}.parquet", row_group_size=4)
        os.utime(folder / f"{part}.parquet", (part, part))
    return str(folder)


def _delta_table(folder: Path, broker: KafkaBroker | None) -> str:
    """One version with all files, as Delta's protocol has it: no Spark is needed to write it."""
    _parquet_files(folder, broker)
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in _SCHEMA.names]
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    for part in range(PARTS):
        file = folder / f"{part}.parquet"
        added = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "dataChange": True}
        actions.append({"add": {**added, "modificationTime": part * 1000}})
    (folder / "_delta_log").mkdir()
    log = folder / "_delta_log" / f"{0:020}.json"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return str(folder)


def _topic(folder: Path, broker: KafkaBroker | None) -> str:
    assert broker is not None
    name = f"in-{uuid.uuid4().hex}"
    broker.create_topic(name, partitions=KAFKA_PARTITIONS)
    for partition in range(KAFKA_PARTITIONS):
        values = [f"{part},{number}" for part, number in in_turns() if part % KAFKA_PARTITIONS == partition]
        broker.produce(name, values, partition=partition)
    return name


def _kafka(place: str, servers: str) -> Source:
    made = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(place)
    made = made.set_value_only_deserializer(SimpleStringSchema())
    return made.set_bounded(KafkaOffsetsInitializer.latest()).build()


def _generated(index: int) -> Record:
    return index % PARTS, index // PARTS


SOURCES = {
    "text": MatrixSource(_text_files, lambda place, _: FileSource.text(place), _of_text, True),
    "parquet": MatrixSource(_parquet_files, lambda place, _: FileSource.parquet(place, type_info=ROW), _of_row, True),
    "delta": MatrixSource(
        _delta_table,
        lambda place, _: DeltaSource(place, ROW, bounded=True, options={"maxFilesPerTrigger": "2"}),
        _of_row,
        True,
    ),
    "kafka": MatrixSource(_topic, _kafka, _of_text, False),
    "generator": MatrixSource(
        lambda folder, _: "", lambda place, _: DataGeneratorSource(_generated, RECORDS, splits=PARTS), _as_it_is, False
    ),
    "collection": MatrixSource(lambda folder, _: "", lambda place, _: CollectionSource(by_part()), _as_it_is, True),
}
