"""Starts a job from a savepoint or checkpoint: the rows, re-hashed for the new parallelism, become buffers that the
first epoch takes in before any data; the sources begin at the positions of the savepoint.

Rule: either everything is compatible and taken over, or the job is refused with the whole report and its directory is
as it was. Once a job has begun in a directory, it goes on there from its own state, whatever savepoint it began with.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any

from flinkish.common.storage import NameForm, absolute
from flinkish.core.source import Source
from flinkish.errors import SavepointError
from flinkish.jobmanager.directory.files import delete_directory
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.savepoints.compatibility import CompatibilityReport, ProgramOutline, compare
from flinkish.jobmanager.savepoints.manifest import Manifest, read_manifest
from flinkish.jobmanager.savepoints.program_states import find_program_states, with_changes
from flinkish.jobmanager.savepoints.restore_rows import FoundRows, Migrations, RowsToBuffers, looked_at, written_to
from flinkish.jobmanager.savepoints.state_catalog import read_states, write_states
from flinkish.jobmanager.savepoints.state_table import (
    check_contents,
    check_unique,
    is_edited,
    open_table,
    reading,
)
from flinkish.jobmanager.savepoints.uids import stateful_without_uid
from flinkish.jobmanager.settings import DriverSettings
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.state.savepoint_rows import WATERMARK, watermark_of
from flinkish.spark.addressing import partitions_of
from flinkish.spark.plan import PlanOptions
from flinkish.spark.settings import described_jobs
from flinkish.spark.worker import deploy

_FILE = "restored.json"

#: The names of the directories of restored rows.
_ROWS = NameForm(r"restore(-[0-9]+|-epoch-[0-9]+)?")


@dataclass(frozen=True)
class RestoredProgram:
    """A program that is to be started from a savepoint: job graph, sources by vertex, and state migrations."""

    job: JobDescriptor
    sources: dict[int, Source]
    migrations: Migrations = field(default_factory=dict)


def prepare_restore(
    spark: Any, program: RestoredProgram, settings: DriverSettings, directory: JobDirectory, first_run: bool
) -> PlanOptions:
    """The restored rows and positions for the job's query, which begins, or has begun, with a savepoint or checkpoint.

    On the first run (``first_run``) the savepoint of the settings is restored; later runs only check that the settings
    name no other one.

    Raises:
        SavepointError: the savepoint is missing, damaged or incompatible with the program, or the job has begun with
            another one.
    """
    remembered = read_restored(directory)
    if not first_run:
        _check_same_savepoint(program.job, settings, directory, remembered)
    elif settings.savepoint is not None:
        # also if an earlier start has already restored it and got no further: it may have had another parallelism
        remembered = _restore(spark, program, settings, settings.savepoint, directory)
    elif remembered is not None:
        directory.delete(_FILE)
        remembered = None
    return PlanOptions() if remembered is None else _options(program, directory, remembered)


def restored_file(first_epoch: int) -> str:
    """Name of the file that says with which savepoint or checkpoint a query begins.

    A query that takes the place of a damaged one has a file of its own, so that the query and its file are exchanged in
    one step: when the new query becomes the job's query.
    """
    return _FILE if first_epoch == 0 else f"restored-{first_epoch}.json"


def read_restored(directory: JobDirectory) -> dict[str, Any] | None:
    """The record of the savepoint or checkpoint that the job's query has begun with; None: it began with none."""
    own = restored_file(directory.query_location().first_epoch)
    return directory.read(own) or directory.read(_FILE)


def _check_same_savepoint(
    job: JobDescriptor, settings: DriverSettings, directory: JobDirectory, remembered: dict[str, Any] | None
) -> None:
    """Refuse another savepoint than the job has begun with. The same savepoint is accepted, however its path is
    written: the same command line again is a restart."""
    began_with, path = (None, None) if remembered is None else (remembered["savepoint"], remembered["path"])
    if settings.savepoint is None or settings.savepoint == began_with:
        return
    if path is not None and absolute(settings.savepoint) == absolute(path):
        return
    beginning = "without a savepoint" if began_with is None else f"with the savepoint {began_with}"
    raise SavepointError(
        f"the job in this directory has begun {beginning} and has state of its own by now: it cannot be started "
        f"from {settings.savepoint}",
        where=f"job '{job.name}', directory {directory.path}",
        expected="a new job directory for each start from a savepoint",
        hint="name another flinkish.job.dir, or leave out -s / --fromSavepoint to go on from the job's own state",
    )


def _restore(
    spark: Any, program: RestoredProgram, settings: DriverSettings, savepoint: str, directory: JobDirectory
) -> dict[str, Any]:
    manifest = read_manifest(savepoint)
    with described_jobs(spark, f"{program.job.name}: restore from {savepoint}"):
        report, watermarks = take_over(spark, program, settings, savepoint, manifest, directory.restore_rows)
    if not report.compatible:
        delete_directory(directory.restore_rows)
        raise _incompatible(report, program.job)
    passed(Phase.RESTORE_PREPARED, savepoint=savepoint)
    uids = {descriptor.uid for vertex in program.job.vertices for descriptor in vertex.operators}
    known = {(state.uid, state.name): state for state in (*manifest.states, *read_states(directory))}
    write_states(directory, tuple(state for state in known.values() if state.uid in uids))
    remembered = {
        "savepoint": savepoint,
        "path": absolute(savepoint),
        "rows": posixpath.basename(directory.restore_rows),
        "claim_mode": settings.claim_mode,
        "sources": manifest.sources,
        "watermarks": watermarks,
    }
    directory.write(_FILE, remembered)
    passed(Phase.RESTORE_APPLIED, savepoint=savepoint)
    return remembered


def take_over(
    spark: Any,
    program: RestoredProgram,
    settings: DriverSettings,
    savepoint: str,
    manifest: Manifest,
    target: str | None,
) -> tuple[CompatibilityReport, dict[str, int]]:
    """Compare a savepoint with a program and, if ``target`` is given, write the rows for the first epoch below it.

    Returns:
        The report of the comparison, and the uid of each vertex's head -> the watermark that the vertex begins with.

    Raises:
        SavepointError: the savepoint cannot be read, or its table does not hold what was written.
    """
    job = program.job
    where = f"job '{job.name}', savepoint {absolute(savepoint)}"
    deployment = deploy(job, partitions_of(job))
    states = with_changes(find_program_states(spark, deployment, where), manifest.states)
    with reading(spark, where, deployment.secret):
        edited = is_edited(manifest, savepoint)
        table = open_table(spark, manifest, savepoint)
        counted = manifest.contents is not None and not edited
        if not counted and manifest.state.version is None:  # a given version of a table cannot have been edited
            check_unique(table, where)
        as_written = manifest.epoch is not None and not edited
        convert = RowsToBuffers(deployment, states, program.migrations, not as_written, target is not None)
        found = looked_at(table, convert) if target is None else written_to(target, spark, table, convert)
        if counted:
            check_contents(manifest, savepoint, found.state_contents())
        watermarks = _watermarks(found)
    outline = outline_of(program)
    allowed = settings.ignore_unclaimed_state
    return compare(savepoint, edited, found.states, manifest.sources, outline, states, allowed), watermarks


def compatibility_of(
    spark: Any, program: RestoredProgram, settings: DriverSettings, savepoint: str
) -> CompatibilityReport:
    """The report of what a start from the savepoint would take over; nothing is written."""
    return take_over(spark, program, settings, savepoint, read_manifest(savepoint), None)[0]


def outline_of(program: RestoredProgram) -> ProgramOutline:
    """The uids of a program, for the comparison with a savepoint."""
    job = program.job
    return ProgramOutline(
        job.name,
        frozenset(descriptor.uid for vertex in job.vertices for descriptor in vertex.operators),
        frozenset(job.vertex(vertex).head.uid for vertex in program.sources),
        stateful_without_uid(job),
    )


def _incompatible(report: CompatibilityReport, job: JobDescriptor) -> SavepointError:
    refused = SavepointError(
        "; ".join(report.problems),
        where=f"job '{job.name}', savepoint {report.savepoint}",
        expected="a program that can take in all of the savepoint",
        hint="; ".join(report.hints),
    )
    refused.details = report.table()
    return refused


def _options(program: RestoredProgram, directory: JobDirectory, remembered: dict[str, Any]) -> PlanOptions:
    uids = {program.job.vertex(vertex).head.uid for vertex in program.sources}
    positions = {uid: position for uid, position in remembered["sources"].items() if uid in uids}
    # a query that has taken the place of a damaged one has its own directory of rows
    rows = rows_of(directory, remembered)
    return PlanOptions(positions=positions, restore_rows=rows)


def rows_of(directory: JobDirectory, remembered: dict[str, Any]) -> str:
    """The directory of the rows that the query has begun with, given what `read_restored` returns.

    Raises:
        FinalOperationError: it names a directory of another form.
    """
    return directory.path_of(_ROWS, remembered.get("rows", "restore"), _FILE)


def _watermarks(found: FoundRows) -> dict[str, int]:
    """The uid of each vertex's head -> the lowest watermark of its subtasks."""
    lowest: dict[str, int] = {}
    for uid, text in sorted(found.watermarks):
        watermark_ms = watermark_of(text, f"savepoint row of uid {uid}, {WATERMARK}")
        lowest[uid] = min(watermark_ms, lowest.get(uid, watermark_ms))
    return lowest


def restored_watermarks(job: JobDescriptor, directory: JobDirectory) -> dict[int, int]:
    """Vertex id -> the watermark that its subtasks begin with, if the job's query has begun with a savepoint or
    checkpoint."""
    watermarks = (read_restored(directory) or {}).get("watermarks", {})
    return {vertex.id: watermarks[vertex.head.uid] for vertex in job.vertices if vertex.head.uid in watermarks}
