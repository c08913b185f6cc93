"""Where sources stand in the middle of their records, as the query's log and a savepoint hold it."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest, TableVersion, version_of
from flinkish.common import WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import CollectionSource, DataGeneratorSource, NumberSequenceSource
from flinkish.connectors.hybrid_source import HybridSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.source import JdbcSource
from flinkish.core.source import SourceSplit
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.progress import OpenSplit, SourceProgress, decode_position, encode_position
from flinkish.runtime.sources.split_list import MAX_TAIL, SegmentsInMemory, SplitList
from tests.unit.minicluster.programs import environment, job_of

RECORDS, PER_EPOCH = 20, 4
#: So many splits that a checkpoint keeps the ids of those that have ended in files.
SPLITS = MAX_TAIL + 6
#: Stands in stored texts for the folder in which the files are.
FOLDER = "{folder}"
_TIME_S = 1_700_000_000


def make_inputs(folder: Path) -> None:
    """The files and the table that the sources read."""
    (folder / "texts").mkdir()
    for number in range(2):
        path = folder / "texts" / f"{number}.txt"
        path.write_text("".join(f"{number}-{line}\n" for line in range(RECORDS // 2)))
        os.utime(path, (_TIME_S, _TIME_S))
    connection = sqlite3.connect(folder / "items.db")
    with connection:
        connection.execute("CREATE TABLE items (id INTEGER)")
        connection.executemany("INSERT INTO items VALUES (?)", [(number,) for number in range(RECORDS)])
    connection.close()


def sources(folder: Path) -> dict[str, Any]:
    """Name -> a source of `RECORDS` records that runs without a server."""
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder / 'items.db'}").build()
    stages = NumberSequenceSource(0, 5), NumberSequenceSource(6, RECORDS - 1)
    return {
        "collection": CollectionSource(list(range(RECORDS)), Types.LONG()),
        "data generator": DataGeneratorSource(lambda index: index, RECORDS, splits=2),
        "files": FileSource.text(str(folder / "texts")),
        "hybrid": HybridSource.builder(stages[0]).add_source(stages[1]).build(),
        "jdbc": JdbcSource("SELECT id FROM items", Types.ROW_NAMED(["id"], [Types.LONG()]), "id", url, page_size=3),
        "number sequence": NumberSequenceSource(0, RECORDS - 1),
    }


def _job(source: Any) -> JobDescriptor:
    env = environment(1)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "source").uid("source").print()
    return job_of(env, max_records_per_epoch=PER_EPOCH)


def read_to_end(
    source: Any, folder: Path, offset: Mapping[str, Any], position: str | None = None, epochs: int = 1_000
) -> tuple[list[Any], dict[str, Any], str]:
    """The records behind an offset of the query's log, or behind a position in a savepoint: those of some epochs; and
    the offset and the position then."""
    job, store = _job(source), SegmentsInMemory()
    restored = {} if position is None else {"source": decode_position(position, "source", store)}
    enumerator = JobEnumerator(job, store, ManualClock(), restored, str(folder / "pages"))
    reader, stand, records = source.create_reader(), dict(offset), []
    for _ in range(epochs):
        end = enumerator.next_offset(stand)
        if end == stand:
            break
        for share in enumerator.shares(stand, end):
            if share.ranges:
                reader.open(share.ranges, 100)
            for wanted in share.ranges:
                for batch in reader.read(wanted, 100):
                    records += batch.values
        stand = end
    position = encode_position(enumerator.progress(stand, "source"), store)
    enumerator.close()
    return list(map(str, records)), stand, position


def stored_positions(folder: Path) -> dict[str, dict[str, Any]]:
    """Name of a source -> its offset and its position after three epochs, and the records that it has read then."""
    found: dict[str, dict[str, Any]] = {}
    for name, source in sources(folder).items():
        records, offset, position = read_to_end(source, folder, {}, epochs=3)
        found[name] = {"records": records, "offset": json.dumps(offset), "position": position}
    for name, splits in _SPLITS_OF_SERVERS.items():
        found[name] = _of_servers(splits)
    found["delta"] = {"position": '{"sourceVersion":1,"reservoirVersion":0,"index":-1,"isStartingVersion":false}'}
    texts = json.dumps(found).replace(str(folder), FOLDER)
    with_folder: dict[str, dict[str, Any]] = json.loads(texts)
    return with_folder


#: What the enumerators of Kafka and Kinesis find in their servers.
_SPLITS_OF_SERVERS = {
    "kafka": [
        SourceSplit("clicks-0", 5, None, {"topic": "clicks", "partition": 0}),
        SourceSplit("clicks-1", 7, 9, {"topic": "clicks", "partition": 1}),
    ],
    "kinesis": [
        SourceSplit("clicks/shardId-000000000000", 0, None, {"at_ms": 5, "hashes": ["0", "7"], "parents": []}),
    ],
}


def _of_servers(splits: Iterable[SourceSplit]) -> dict[str, Any]:
    listed = tuple(splits)
    going = tuple(OpenSplit(number, 0, split.start + 1) for number, split in enumerate(listed))
    progress = SourceProgress(SplitList(tail=listed), len(listed), going, (0,) * len(listed))
    position = encode_position(progress, SegmentsInMemory(), {"clicks": "made"})
    return {"offset": json.dumps({"sources": {"source": progress.encode()}}), "position": position}


def write_checkpoint_with_files(folder: Path) -> None:
    """A checkpoint of a source with many splits, all of which have ended but for two."""
    directory, store = CheckpointDirectory(str(folder / "checkpoints")), SegmentsInMemory()
    found = [SourceSplit(f"part-{number:03}", 0, 9) for number in range(SPLITS)]
    splits = SplitList().with_splits(found, 0, frozenset(), store)
    progress = SourceProgress(splits, SPLITS, (OpenSplit(SPLITS - 2, 0, 3), OpenSplit(SPLITS - 1, 1, 0)))
    positions = {"files": encode_position(progress, store, None, directory.store_ids)}
    state, version = TableVersion("../state", 1), version_of(positions, None)
    manifest = Manifest("ab", "job", 1, 0, sources=positions, state=state, savepoint_version=version)
    directory.write(1, manifest)
