"""The sinks of the matrix, and what stands in them, read without Spark."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flinkish.common import Row
from flinkish.common.serialization import Encoder, SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.file_system.sink import FileSink
from flinkish.connectors.file_system.sink_options import BucketAssigner
from flinkish.connectors.frame_sinks import DeltaSink
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.kafka.properties import DeliveryGuarantee
from flinkish.connectors.kafka.sink import KafkaRecordSerializationSchema, KafkaSink
from flinkish.core.sink import Sink
from tests.integration.matrix.servers import Servers
from tests.support.exactness import Output

_COLUMNS = ["lane", "id", "number", "life", "content"]
_TYPES = [Types.STRING(), Types.STRING(), Types.LONG(), Types.STRING(), Types.STRING()]
OUTPUT_ROW = Types.ROW_NAMED(_COLUMNS, _TYPES)
_PART_FILE = re.compile(r".*-(?P<subtask>\d+)-(?P<epoch>\d+)")


@dataclass(frozen=True)
class MatrixSink:
    """One kind of sink.

    Args:
        make: (folder, servers) -> the place of the output: a path, a connection string or the name of a topic.
        create: (place, addresses of the Kafka servers, name) -> one of the sinks that write there.
        input_type: what the sink takes: rows, or JSON texts.
        read: (place, servers) -> what stands in it, each lane in the order in which it was written.
    """

    make: Callable[[Path, Servers], str]
    create: Callable[[str, str, str], Sink]
    input_type: TypeInformation
    read: Callable[[str, Servers], list[Output]]

    def encode(self, output: Output) -> Any:
        """An output as the sink takes it."""
        fields = (output.lane, output.id, output.number, output.life, output.content)
        return Row(*fields) if self.input_type is OUTPUT_ROW else json.dumps(fields)


# ---------------------------------------------------------------------------------------------------- JDBC


def _database(folder: Path, servers: Servers) -> str:
    uri = servers.postgres.create_database()
    columns = "lane TEXT, id TEXT, number BIGINT, life TEXT, content TEXT, place BIGSERIAL"
    servers.postgres.query(uri, f"CREATE TABLE outputs ({columns})")
    return uri


def _jdbc(place: str, _: str, __: str) -> Sink:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:{place}").build()
    statement = f"INSERT INTO outputs ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?)"
    return JdbcSink.sink(statement, OUTPUT_ROW, options)


def _in_database(place: str, servers: Servers) -> list[Output]:
    rows = servers.postgres.query(place, f"SELECT {', '.join(_COLUMNS)} FROM outputs ORDER BY place")
    return [Output(*row) for row in rows]


# ---------------------------------------------------------------------------------------------------- Delta


def _in_delta_table(place: str, servers: Servers | None) -> list[Output]:
    """By the table's log alone: the sink only appends. Files that OPTIMIZE has merged hold rows in no order."""
    files: dict[str, list[Output]] = {}
    merged: set[str] = set()
    for version in sorted(Path(place).glob("_delta_log/*.json")):
        actions = [json.loads(line) for line in version.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                assert not action["remove"]["dataChange"], f"{version} removes rows"
                del files[action["remove"]["path"]]
            elif "add" in action:
                path = action["add"]["path"]
                rows = pq.read_table(Path(place) / path).to_pylist() if (Path(place) / path).exists() else []
                files[path] = [Output(*(row[name] for name in _COLUMNS)) for row in rows]
                merged |= set() if action["add"]["dataChange"] else {path}
    outputs = [output for path, rows in files.items() for output in rows]
    return sorted(outputs, key=lambda output: output.number) if merged else outputs


# ---------------------------------------------------------------------------------------------------- files


def _files(place: str, _: str, name: str) -> Sink:
    sink = FileSink.for_row_format(f"{place}/{name}", Encoder.simple_string_encoder())
    return sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()


def _in_files(place: str, servers: Servers) -> list[Output]:
    return list(_lines(Path(place)))


def _lines(folder: Path) -> Iterator[Output]:
    for _, text in sorted(contents_of_parts(folder).items(), key=lambda part: (part[0][2], part[0][1])):
        for line in text.splitlines():
            yield Output(*json.loads(line))


def contents_of_parts(folder: Path) -> dict[tuple[str, int, int], str]:
    """Name of the sink, subtask and epoch -> what the file holds."""
    found = [(match, path) for path in folder.glob("*/[!.]*") if (match := _PART_FILE.fullmatch(path.name))]
    return {(path.parent.name, int(match["subtask"]), int(match["epoch"])): path.read_text() for match, path in found}


# ---------------------------------------------------------------------------------------------------- Kafka


def _topic(folder: Path, servers: Servers) -> str:
    name = f"out-{uuid.uuid4().hex}"
    # one partition: the order of a lane is that of its records
    servers.kafka.create_topic(name, partitions=1)
    return name


def _kafka(place: str, kafka_servers: str, name: str) -> Sink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(place)
    serializer.set_value_serialization_schema(SimpleStringSchema())
    made = KafkaSink.builder().set_bootstrap_servers(kafka_servers).set_record_serializer(serializer.build())
    return (
        made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        # all jobs of the matrix have the same one
        .set_transactional_id_prefix(f"matrix-{name}")
        .build()
    )


def _in_topic(place: str, servers: Servers) -> list[Output]:
    return [Output(*json.loads(record.value or b"")) for record in servers.kafka.consume(place)]


SINKS = {
    "jdbc": MatrixSink(_database, _jdbc, OUTPUT_ROW, _in_database),
    "delta": MatrixSink(lambda folder, _: str(folder), lambda place, *_: DeltaSink(place), OUTPUT_ROW, _in_delta_table),
    "files": MatrixSink(lambda folder, _: str(folder), _files, Types.STRING(), _in_files),
    "kafka": MatrixSink(_topic, _kafka, Types.STRING(), _in_topic),
}
