"""What must stay the same in the inputs of a job's query from run to run, and where its sources stand.

A tick of a generated source is an epoch's share of it: its place in the data depends on how many records a tick may
have and on the number of splits. So a job directory keeps the number of records per tick that it began with, whatever
the configuration says later, and a savepoint carries it from job to job. Spark knows a query's inputs by their place:
the heartbeat is one of them and can only be left out of a query that never had it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from flinkish.core.source import GeneratedSource, Source
from flinkish.errors import IncompatibleJobError, SavepointError
from flinkish.jobmanager.directory.damaged_files import missing_file
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.runtime.deployment import JobDescriptor
from flinkish.spark.plan import FirstTick, PlanOptions

_FILE = "query.json"


@dataclass(frozen=True)
class GeneratedPosition:
    """Where a generated source stands: before ``tick``, with ticks of at most ``records`` records a split."""

    tick: int
    records: int
    splits: int

    def encode(self) -> str:
        """The form in a savepoint's manifest."""
        return json.dumps(self.__dict__)

    @staticmethod
    def decode(text: str, where: str) -> GeneratedPosition:
        """The inverse of `encode`. SavepointError when it is something else."""
        try:
            return GeneratedPosition(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise SavepointError(
                f"the position {text[:200]!r} of a generated source cannot be read: {error}",
                where=where,
                expected='{"tick": ..., "records": ..., "splits": ...}',
                hint="use another savepoint",
            ) from error


def first_ticks(job: JobDescriptor, sources: dict[int, Source], positions: dict[str, str]) -> dict[int, FirstTick]:
    """Vertex -> where its generated source goes on, from the positions (by uid) of a savepoint."""
    found: dict[int, FirstTick] = {}
    for vertex_id, source in sources.items():
        head = job.vertex(vertex_id).head
        if not isinstance(source, GeneratedSource) or head.uid not in positions:
            continue
        where = f"job '{job.name}', source '{head.name}' (uid {head.uid})"
        position = GeneratedPosition.decode(positions[head.uid], where)
        if position.splits != source.splits:
            raise SavepointError(
                f"the source has {source.splits} splits and had {position.splits} when the savepoint was taken",
                where=where,
                expected="as many splits as before",
                hint="make the source with the old number of splits",
            )
        found[vertex_id] = FirstTick(position.tick, position.records)
    return found


def position_after(source: GeneratedSource, end_offset: str, first: FirstTick) -> str:
    """The position behind the last tick of an epoch. ``end_offset``: of the query's ticks, as Spark writes it."""
    ticks = int(json.loads(end_offset)["offset"]) // source.splits
    return GeneratedPosition(first.tick + ticks, first.records, source.splits).encode()


def keep_tick_size(directory: JobDirectory, job: JobDescriptor, options: PlanOptions) -> PlanOptions:
    """The options with the number of records per tick that the directory began with."""
    kept = _read(directory)
    if "records_per_tick" not in kept:
        kept["records_per_tick"] = job.settings.max_records_per_epoch
        kept["restored"] = options.restore_rows is not None
        directory.write(_FILE, kept)
    if kept.get("restored") and options.restore_rows is None:
        raise missing_file(directory.path, "restored.json")
    return replace(options, records_per_tick=int(kept["records_per_tick"]))


def keep_heartbeat(directory: JobDirectory, job_name: str, control: bool) -> bool:
    """Whether the query has the heartbeat as an input: as it had in the directory's first run."""
    kept = _read(directory)
    if "heartbeat" not in kept:
        kept["heartbeat"] = control
        directory.write(_FILE, kept)
    if control and not kept["heartbeat"]:
        raise IncompatibleJobError(
            "the program now needs epochs without data (processing time, idle sources), which it did not before",
            where=f"job '{job_name}', directory {directory.path}",
            expected="a program that needs a heartbeat, or none, as before",
            hint="take a savepoint with the old program and start the new one from it (-s) in a new directory",
        )
    return bool(kept["heartbeat"])


def _read(directory: JobDirectory) -> dict[str, Any]:
    return directory.read(_FILE) or {}
