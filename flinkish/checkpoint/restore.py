"""Starts a job from a savepoint or checkpoint: the rows, re-hashed for the new parallelism, become buffers that the
first epoch takes in before any data; the sources begin at the positions of the savepoint.

Rule: either everything is compatible and taken over, or the job is refused with the whole report and its directory is
as it was. Once a job has begun in a directory, it goes on there from its own state, whatever savepoint it began with.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flinkish.checkpoint.claim import check_same_savepoint, read_restored, remember_restored
from flinkish.checkpoint.compatibility import (
    CompatibilityReport,
    ProgramOutline,
    compare,
    find_program_states,
    incompatible,
    outline_of,
    with_changes,
)
from flinkish.checkpoint.manifest import Savepoint
from flinkish.checkpoint.rows import (
    FoundRows,
    Migrations,
    RowsToBuffers,
    check_contents,
    check_unique,
    checked_rows,
    is_edited,
    open_table,
    reading,
    written_buffers,
)
from flinkish.common.configuration import Configuration
from flinkish.common.job_id import JobID
from flinkish.core.source import Source
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import ROWS_NAME, EventTimes, Restored
from flinkish.jobmanager.job.settings import DriverSettings, driver_settings, job_settings
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.state.saved.values import ProgramStates
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.spark.data_files import VERIFY_PAGES
from flinkish.spark.dependencies import ship
from flinkish.spark.failures import translate
from flinkish.spark.place import partitions_of
from flinkish.spark.plan import PlanOptions
from flinkish.spark.session import get_session
from flinkish.spark.settings import described_jobs, session_with
from flinkish.spark.worker import Deployment, deploy
from flinkish.storage.files import delete_directory


@dataclass(frozen=True)
class RestoredProgram:
    """A program that is to be started from a savepoint, or from the job's own state: job graph, sources by vertex, and
    state migrations."""

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
        check_same_savepoint(program.job, settings, directory, remembered)
    elif settings.savepoint is not None:
        # also if an earlier start has already restored it and got no further: it may have had another parallelism
        remembered = _restore(spark, program, settings, settings.savepoint, directory)
    elif remembered is not None:
        directory.delete(Restored)
        remembered = None
    return PlanOptions() if remembered is None else _options(program, directory, remembered)


def _restore(
    spark: Any, program: RestoredProgram, settings: DriverSettings, savepoint: str, directory: JobDirectory
) -> Restored:
    opened = Savepoint.open(savepoint)
    with described_jobs(spark, f"{program.job.name}: restore from {savepoint}"):
        report, times = take_over(spark, program, settings, opened, directory.restore_rows)
    if not report.compatible:
        delete_directory(directory.restore_rows)
        raise incompatible(report, program.job)
    passed(Phase.RESTORE_PREPARED, savepoint=savepoint)
    rows = posixpath.basename(directory.restore_rows)
    remembered = remember_restored(directory, program.job, settings.claim_mode, opened, times, rows)
    passed(Phase.RESTORE_APPLIED, savepoint=savepoint)
    return remembered


def take_over(
    spark: Any,
    program: RestoredProgram,
    settings: DriverSettings,
    savepoint: Savepoint,
    target: str | None,
    declared: ProgramStates | None = None,
) -> tuple[CompatibilityReport, EventTimes]:
    """Compare a savepoint with a program and, if ``target`` is given, write the rows for the first epoch below it.
    ``declared``: the states that the program declares; None: they are found out.

    Returns:
        The report of the comparison, and how far event time is.

    Raises:
        SavepointError: the savepoint cannot be read, or its table does not hold what was written.
    """
    manifest = savepoint.manifest
    where = f"job '{program.job.name}', savepoint {savepoint.path}"
    conversion = _Conversion.of(program, manifest.states, declared or declared_states(spark, program, where))
    with reading(spark, where, conversion.deployment.secret) as session:
        edited = is_edited(savepoint)
        table = open_table(session, savepoint)
        counted = manifest.contents is not None and not edited
        if not counted and manifest.state.version is None:  # a given version of a table cannot have been edited
            check_unique(table, where)
        found = conversion.found(session, table, target, manifest.epoch is not None and not edited)
        if counted:
            check_contents(savepoint, found.state_contents())
        times = found.event_times()
    return conversion.report(savepoint.given, edited, found, manifest.sources, settings), times


@dataclass(frozen=True)
class OwnState:
    """State of the job's own, with which a changed program goes on: its rows as they were written, in a session, the
    states that the job has declared, and the positions of its sources. ``shown``: what it is, in words."""

    shown: str
    rows: Callable[[Any], Any]
    states: tuple[DeclaredState, ...]
    sources: Mapping[str, str]


def take_over_own(
    spark: Any,
    program: RestoredProgram,
    settings: DriverSettings,
    own: OwnState,
    target: str | None,
    declared: ProgramStates,
) -> tuple[CompatibilityReport, EventTimes]:
    """The same as `take_over`, of the job's own state.

    Raises:
        FlinkishError: the state cannot be read.
    """
    where = f"job '{program.job.name}', {own.shown}"
    conversion = _Conversion.of(program, own.states, declared)
    try:
        with session_with(spark, dict([VERIFY_PAGES])) as session:
            found = conversion.found(session, own.rows(session), target, as_written=True)
    except Exception as error:
        raise translate(error, where, conversion.deployment.secret) from error
    report = conversion.report(own.shown, False, found, own.sources, settings)
    return replace(report, own_state=True), found.event_times()


def declared_states(spark: Any, program: RestoredProgram, where: str) -> ProgramStates:
    """The states that a program declares, which a worker finds out. ``where``: names the job in errors."""
    return find_program_states(spark, deploy(program.job, partitions_of(program.job)), where)


@dataclass(frozen=True)
class _Conversion:
    """Makes buffers for a program of the rows of states that were declared before."""

    program: RestoredProgram
    deployment: Deployment
    states: ProgramStates

    @staticmethod
    def of(program: RestoredProgram, before: tuple[DeclaredState, ...], declared: ProgramStates) -> _Conversion:
        return _Conversion(program, deploy(program.job, partitions_of(program.job)), with_changes(declared, before))

    def found(self, spark: Any, rows: Any, target: str | None, as_written: bool) -> FoundRows:
        """What is in the rows, of which buffers are written below ``target`` if it is given."""
        convert = RowsToBuffers(
            self.deployment, self.states, self.program.migrations, not as_written, target is not None
        )
        return checked_rows(rows, convert) if target is None else written_buffers(target, spark, rows, convert)

    def report(
        self, shown: str, edited: bool, found: FoundRows, sources: Iterable[str], settings: DriverSettings
    ) -> CompatibilityReport:
        """What becomes of each state."""
        allowed = settings.ignore_unclaimed_state
        return compare(shown, edited, found.states, sources, self.outline(), self.states, allowed)

    def outline(self) -> ProgramOutline:
        """The uids of the program."""
        job = self.program.job
        return outline_of(job, (job.vertex(vertex).head.uid for vertex in self.program.sources))


def declared_by(spark: Any, program: RestoredProgram) -> CompatibilityReport:
    """The report of a start without any state: all states that the program declares are new."""
    conversion = _Conversion.of(program, (), declared_states(spark, program, f"job '{program.job.name}'"))
    outline = replace(conversion.outline(), without_uid=())
    report = compare("no state", False, (), (), outline, conversion.states, False)
    return replace(report, own_state=True)


def _options(program: RestoredProgram, directory: JobDirectory, remembered: Restored) -> PlanOptions:
    uids = {program.job.vertex(vertex).head.uid for vertex in program.sources}
    positions = {uid: position for uid, position in remembered.sources.items() if uid in uids}
    # a query that has taken the place of a damaged one has its own directory of rows
    rows = rows_of(directory, remembered)
    return PlanOptions(positions=positions, restore_rows=rows)


def rows_of(directory: JobDirectory, remembered: Restored) -> str:
    """The directory of the rows that the query has begun with, given what `read_restored` returns.

    Raises:
        FinalOperationError: it names a directory of another form.
    """
    return directory.path_of(ROWS_NAME, remembered.rows, Restored)


def compatibility_report(
    graph: StreamGraph,
    configuration: Configuration,
    savepoint: Savepoint,
    chaining: bool,
    session: Any = None,
    job_name: str = "dry run",
) -> CompatibilityReport:
    """Compare a program with a savepoint. Nothing is written, but a worker opens and closes the program's keyed
    operators once, to find out which states they declare.

    Raises:
        ProgramError: the program is wrong.
        SavepointError: the savepoint is damaged.
    """
    generator = JobGraphGenerator(graph, job_settings(configuration), chaining)
    spark = session if session is not None else get_session(configuration, job_name)
    generator.with_shipped_files(ship(spark, configuration))
    job = generator.generate(JobID().to_hex_string(), job_name)
    program = RestoredProgram(job, generator.sources(), generator.migrations())
    return take_over(spark, program, driver_settings(configuration), savepoint, None)[0]
