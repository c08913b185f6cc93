"""Starts a job from a savepoint: its rows, re-hashed for the new parallelism, become buffers that the first epoch takes
in before any data; its sources begin where they stood."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flinkish.core.source import DataFrameSource, Source
from flinkish.errors import SavepointError
from flinkish.jobmanager.attempt.query_inputs import first_ticks
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.savepoints.manifest import Manifest, read_manifest
from flinkish.jobmanager.settings import DriverSettings
from flinkish.runtime.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.key_groups import key_group_of
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.state.body_codec import StateRow
from flinkish.runtime.state.restore import OPERATOR_STATE_KIND
from flinkish.runtime.state.savepoint_rows import WATERMARK, SavepointRow, from_savepoint_row, from_text
from flinkish.runtime.task import Row
from flinkish.spark.addressing import AddressBook, partitions_of
from flinkish.spark.failures import translate
from flinkish.spark.plan import PlanOptions
from flinkish.spark.rows import ROW_SCHEMA, to_arrow
from flinkish.spark.worker import Deployment, deploy, failures_marked

_BATCH_ROWS = 20_000


@dataclass(frozen=True)
class RowsToBuffers:
    """Rows of a savepoint -> STATE buffers for the channels of the new job."""

    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One partition of the savepoint's table."""
        with failures_marked():
            job = self.deployment.job()
            book = AddressBook(job, self.deployment.partitions)
            for batch in batches:
                yield from to_arrow(self._buffers(job, batch), book, 1)

    def _buffers(self, job: JobDescriptor, batch: pa.RecordBatch) -> Iterator[Row]:
        by_channel: dict[tuple[int, int], list[tuple[str, StateRow]]] = defaultdict(list)
        places = _places(job)
        for values in zip(*(column.to_pylist() for column in batch.columns)):
            saved = SavepointRow(*values)
            if saved.kind == WATERMARK or saved.uid not in places:
                continue
            uid, row = from_savepoint_row(saved)
            by_channel[_channel(job, places[uid], row)].append((uid, row))
        for (vertex, channel), rows in by_channel.items():
            for start in range(0, len(rows), _BATCH_ROWS):
                payload = pickle.dumps(rows[start : start + _BATCH_ROWS], protocol=5)
                header = BufferHeader(BufferKind.STATE, vertex, channel, 0, "", 0, 0, len(rows))
                yield vertex, channel, encode(header, payload)


def _places(job: JobDescriptor) -> dict[str, int]:
    """Operator uid -> vertex."""
    return {d.uid: vertex.id for vertex in job.vertices if vertex.level > 0 for d in vertex.operators}


def _channel(job: JobDescriptor, vertex_id: int, row: StateRow) -> tuple[int, int]:
    vertex = job.vertex(vertex_id)
    if row.kind == OPERATOR_STATE_KIND:
        subtask = int(row.key) % vertex.parallelism
        return vertex_id, (vertex.max_parallelism + subtask) if vertex.keyed else subtask
    return vertex_id, key_group_of(row.key, vertex.max_parallelism)


def prepare_restore(
    spark: Any,
    job: JobDescriptor,
    sources: dict[int, Source],
    settings: DriverSettings,
    directory: JobDirectory,
    first_run: bool,
) -> PlanOptions:
    """What the query must know of the savepoint. A directory that a job has begun in goes on from its own state."""
    remembered = directory.read("restored.json")
    if remembered is not None:
        return _options(job, sources, directory, remembered)
    if settings.savepoint is None or not first_run:
        return PlanOptions()
    manifest = read_manifest(settings.savepoint)
    where = f"job '{job.name}', savepoint {settings.savepoint}"
    table = _open(spark, manifest, settings.savepoint, where)
    _check_operators(job, table, settings, where)
    deployment = deploy(job, partitions_of(job))
    try:
        rows = table.mapInArrow(RowsToBuffers(deployment), ROW_SCHEMA)
        rows.coalesce(4).write.mode("overwrite").parquet(directory.restore_rows)
    except Exception as error:
        raise translate(error, where) from error
    passed(Phase.RESTORE_PREPARED, savepoint=settings.savepoint)
    remembered = {
        "savepoint": settings.savepoint,
        "sources": manifest.sources,
        "watermarks": _watermarks(table),
    }
    directory.write("restored.json", remembered)
    passed(Phase.RESTORE_APPLIED, savepoint=settings.savepoint)
    return _options(job, sources, directory, remembered)


def _options(
    job: JobDescriptor, sources: dict[int, Source], directory: JobDirectory, remembered: dict[str, Any]
) -> PlanOptions:
    offsets = {
        vertex.id: remembered["sources"][vertex.head.uid]
        for vertex in job.vertices
        if isinstance(sources.get(vertex.id), DataFrameSource) and vertex.head.uid in remembered["sources"]
    }
    ticks = first_ticks(job, sources, remembered["sources"])
    return PlanOptions(first_ticks=ticks, start_offsets=offsets, restore_rows=directory.restore_rows)


def _watermarks(table: Any) -> dict[str, int]:
    """Uid of a vertex' head -> the lowest watermark of its channels."""
    lowest: dict[str, int] = {}
    for uid, text in table.where(f"kind = '{WATERMARK}'").select("uid", "value").collect():
        watermark_ms = int(from_text(text, f"savepoint row of uid {uid}, {WATERMARK}"))
        lowest[uid] = min(watermark_ms, lowest.get(uid, watermark_ms))
    return lowest


def restored_watermarks(job: JobDescriptor, directory: JobDirectory) -> dict[int, int]:
    """Vertex -> the watermark that its channels begin with, in a directory that began with a savepoint."""
    watermarks = (directory.read("restored.json") or {}).get("watermarks", {})
    return {vertex.id: watermarks[vertex.head.uid] for vertex in job.vertices if vertex.head.uid in watermarks}


def _open(spark: Any, manifest: Manifest, savepoint: str, where: str) -> Any:
    reader = spark.read.format("delta")
    if manifest.state.version is not None:
        reader = reader.option("versionAsOf", manifest.state.version)
    try:
        table = reader.load(manifest.table_path(savepoint))
        return table.select(*SavepointRow._fields)
    except Exception as error:
        raise SavepointError(
            f"the state of the savepoint cannot be read: {translate(error, where).what}",
            where=where,
            expected="a Delta table with the columns " + ", ".join(SavepointRow._fields),
        ) from error


def _check_operators(job: JobDescriptor, table: Any, settings: DriverSettings, where: str) -> None:
    uids = {row["uid"] for row in table.select("uid").distinct().collect()}
    unknown = sorted(uids - set(_places(job)))
    if unknown and not settings.ignore_unclaimed_state:
        raise SavepointError(
            f"the savepoint holds state of operators that the program does not have: {', '.join(unknown)}",
            where=where,
            expected="an operator with that uid",
            hint="give the operator its old uid, or allow the state to be dropped "
            "(execution.state-recovery.ignore-unclaimed-state: true)",
        )
