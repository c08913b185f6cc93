"""Lets a job go on in its own directory with a changed program: another graph, parallelism, max parallelism or number
of Spark partitions. It is a restore from the state of the last epoch that sinks can have heard of.

    the prepared epoch is committed     if Spark has not committed it, and the state before it can be taken over
    rows of the state, re-hashed        restore-epoch-<first epoch>/
    `RestoredByFallback`, `TotalsBefore`, `Job.upgrade`
    `QueryFile`                         spark-<first epoch> is the job's query, and the changed program its program

Rule: up to the last step the job is the one that it was, and whoever starts the earlier program goes on with that;
behind it the job is the changed one. What cannot be taken over is refused before anything is written but rows, which
are deleted again. A prepared epoch may be committed by whichever program, as it is committed once and in one way.

Rule: no epoch number is used twice. What the earlier program has planned and not prepared, no sink has heard of; the
changed program reads it anew. The earlier query, with its files of keyed state, stays until the new one has committed
an epoch: until then the next upgrade, or the way back, begins with the same state.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flinkish.checkpoint.claim import check_same_savepoint, read_restored
from flinkish.checkpoint.compatibility import CompatibilityReport, read_states
from flinkish.checkpoint.manifest import Savepoint
from flinkish.checkpoint.restore import OwnState, RestoredProgram, declared_states, take_over, take_over_own
from flinkish.errors import CorruptStateError, IncompatibleJobError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import KEYED_STATE_NAME, QUERY_NAME, DrainMarker, Origin, Restored, RestoredByFallback
from flinkish.jobdir.query import QueryLog, Traces, check_query
from flinkish.jobdir.structure import levels_of, source_uids, vertex_uids
from flinkish.jobdir.waiting_epoch import known_sources
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.jobmanager.job_totals import noted_totals, with_epoch
from flinkish.jobmanager.query_inputs import (
    all_have_ended,
    check_committed,
    end_offsets,
    positions_by_uid,
    prepare_sinks,
)
from flinkish.runtime.epoch.changelog_files import changelog_directory
from flinkish.runtime.epoch.files import EpochFiles, PreparedEpochs, prepared_directory
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.accumulators import AccumulatorFiles, accumulators_directory
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.job_enumerator import offset_of
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.state.saved.values import ProgramStates
from flinkish.runtime.task.open_functions import AttemptFiles
from flinkish.spark.failures import translate
from flinkish.spark.place import partitions_of
from flinkish.spark.sink_stage import EpochRunner
from flinkish.spark.state import SAVEPOINT_SCHEMA, read_state
from flinkish.spark.worker import DeployedClasses, announce_batch, deploy, numbers_announced
from flinkish.storage.files import delete_directory

_LOG = logging.getLogger("flinkish.JobManager")


@dataclass(frozen=True)
class UpgradeStep:
    """From where to where an upgrade goes."""

    #: the last epoch that the job's query has committed; None: it has committed none
    epoch: int | None
    #: the epoch behind it that is prepared and has to be committed first; None: there is none
    to_commit: int | None
    #: number of the first epoch of the new query
    first_epoch: int


def decide(traces: Traces, first_epoch: int) -> UpgradeStep:
    """Decide with which state a changed program goes on. ``first_epoch``: that of the job's query, whose traces these
    are.

    Rule: the names of files decide. An epoch counts as soon as it is prepared: its state is written by then, sinks may
    have a part of it, and it is committed before anything else. An epoch that was only planned does not count, and its
    number is not used again.
    """
    epoch, prepared = max(traces.committed, default=None), max(traces.prepared, default=-1)
    to_commit = prepared if prepared > (-1 if epoch is None else epoch) else None
    return UpgradeStep(epoch, to_commit, max(first_epoch, prepared, *traces.planned, *traces.committed) + 1)


@dataclass(frozen=True)
class Upgrade:
    """The upgrade of one job to a changed program.

    Args:
        spark: the session.
        settings: the driver's.
        directory: the job directory, which this driver owns; for a report alone it need not.
        program: the changed program.
        differences: what differs in it, in words.
    """

    spark: Any
    settings: DriverSettings
    directory: JobDirectory
    program: RestoredProgram
    differences: tuple[str, ...]

    def report(self) -> tuple[UpgradeStep, CompatibilityReport]:
        """What would become of each state; nothing is written.

        Raises:
            FinalOperationError: the state cannot be read, or the program lacks a sink of a prepared epoch.
        """
        step, _ = self._step()
        return step, self._taken_over(step, None)[0]

    def carry_out(self) -> None:
        """Let the job go on with the changed program.

        Raises:
            FinalOperationError: that is not possible; then the directory is as it was.
        """
        step, traces = self._step()
        check_committed(self.spark, self.program.job, self.directory, traces.last_delivered)
        if step.to_commit is not None:
            self._check(self._taken_over(step, None)[0])
            self._commit(step.to_commit)
            step, _ = self._step()
        target = self.directory.fallback_rows(step.first_epoch)
        try:
            report, restored = self._taken_over(step, target)
            self._check(report)
        except BaseException:
            delete_directory(target)
            raise
        passed(Phase.UPGRADE_PREPARED, epoch=step.first_epoch)
        self._write(step, restored)
        passed(Phase.UPGRADE_WRITTEN, epoch=step.first_epoch)
        name, keyed_state = f"spark-{step.first_epoch}", f"keyed-state-{step.first_epoch}"
        # files that an interrupted upgrade, or a copy of the directory, has left
        for left in (name, keyed_state):
            delete_directory(posixpath.join(self.directory.path, left))
        self.directory.move_query(name, step.first_epoch, keyed_state)
        passed(Phase.UPGRADE_DONE, epoch=step.first_epoch)
        _LOG.warning(
            "job '%s': it goes on with a changed program from %s: %s",
            self.program.job.name,
            report.savepoint,
            "; ".join(self.differences),
        )

    # ------------------------------------------------------------------ what there is

    @property
    def _where(self) -> str:
        return f"job '{self.program.job.name}', directory {self.directory.path}"

    def _step(self) -> tuple[UpgradeStep, Traces]:
        """From where to where it goes, and the traces of the query.

        Raises:
            FinalOperationError: nobody but the earlier program can go on from there.
        """
        if self.directory.read(DrainMarker) is not None:
            raise self._only_earlier("the job is being drained", "it completes the drain")
        check_same_savepoint(self.program.job, self.settings, self.directory, read_restored(self.directory))
        location = self.directory.query_location()
        try:
            traces = check_query(location)
        except CorruptStateError as error:
            raise self._only_earlier(error.what, "it goes back to its last checkpoint if it can") from error
        step = decide(traces, location.first_epoch)
        last = step.epoch if step.to_commit is None else step.to_commit
        if last is not None and self._has_ended(self._ends(last)):
            raise self._only_earlier("the job has read all of its input", "it comes to its end")
        if step.to_commit is not None:
            prepared = PreparedEpochs(prepared_directory(location.path)).read(step.to_commit)
            if prepared is not None:
                # raises if the program lacks a sink of it
                prepared.by_target(self.program.job)
        return step, traces

    def _only_earlier(self, what: str, then: str) -> IncompatibleJobError:
        return IncompatibleJobError(
            f"the program differs from the one that wrote this job directory, and {what}",
            where=self._where,
            expected="the program as it was",
            hint=f"start it once more: {then}. The program has changed in this: {'; '.join(self.differences)}",
        )

    def _check(self, report: CompatibilityReport) -> None:
        """Raise IncompatibleJobError, with the whole report, if something cannot be taken over."""
        if report.compatible:
            return
        refused = IncompatibleJobError(
            f"the program differs from the one that wrote this job directory: {'; '.join(self.differences)}. It cannot "
            f"take over {report.savepoint}: {'; '.join(report.problems)}",
            where=self._where,
            expected="a program that can take in all of the job's state",
            hint="; ".join((*report.hints, "or undo the change: the directory is as it was")),
        )
        refused.details = report.table()
        raise refused

    # ------------------------------------------------------------------ the state

    def _taken_over(self, step: UpgradeStep, target: str | None) -> tuple[CompatibilityReport, RestoredByFallback]:
        """The report, and what the new query begins with; its rows are written below ``target`` if that is given."""
        before = read_restored(self.directory)
        origin, sources = self._origin(step, before)
        path = None if before is None else before.checkpoint or before.path
        if origin is None and path:
            # the query has begun with it and committed nothing
            opened = Savepoint.open(path)
            report, times = take_over(self.spark, self.program, self.settings, opened, target, self._declared)
            sources = opened.manifest.sources
        else:
            states = read_states(self.directory)
            own = OwnState(self._shown(origin), lambda session: self._rows(session, origin), states, sources)
            report, times = take_over_own(self.spark, self.program, self.settings, own, target, self._declared)
        whence = before or Restored()
        restored = RestoredByFallback(
            whence.savepoint,
            whence.path,
            posixpath.basename(self.directory.fallback_rows(step.first_epoch)),
            whence.claim_mode,
            dict(sources),
            times.watermarks,
            whence.time_ms,
            # as long as its own state is that of the checkpoint
            checkpoint=whence.checkpoint if origin is None else "",
            upgraded=True,
            upgraded_from=origin,
            state=origin is not None or bool(path),
            splits=times.splits,
        )
        return report, restored

    @cached_property
    def _declared(self) -> ProgramStates:
        """The states that the program declares, which a worker finds out once."""
        return declared_states(self.spark, self.program, self._where)

    def _origin(self, step: UpgradeStep, before: Restored | None) -> tuple[Origin | None, Mapping[str, str]]:
        """The query whose state is taken over, and the positions of its sources."""
        if step.epoch is None:
            # if the query has itself begun by an upgrade, and committed nothing, its state is still where it was
            return (None, {}) if before is None else (before.upgraded_from, before.sources)
        location, structure = self.directory.query_location(), self.directory.structure()
        keyed_state, query = posixpath.basename(self.directory.keyed_state), posixpath.basename(location.path)
        assert structure is not None, "the program differs from it"
        sources = positions_by_uid(
            source_uids(structure),
            self._ends(step.epoch),
            SegmentFiles(self.directory.path),
            known_sources(self.directory),
            self._where,
        )
        return Origin(query, location.first_epoch, step.epoch, levels_of(structure), keyed_state), sources

    def _ends(self, epoch: int) -> list[str | None]:
        """The positions of the inputs of the query that are sources, at the end of an epoch."""
        ends = end_offsets(self.directory.query_location(), epoch)
        # the rows with which the query has begun are its last input
        return ends[:-1] if read_restored(self.directory) is not None else ends

    def _has_ended(self, ends: list[str | None]) -> bool:
        offset = offset_of(next(iter(ends), None), self._where)
        return all_have_ended(offset, offset.get("sources", ()), len(ends) > 1)

    def _shown(self, origin: Origin | None) -> str:
        if origin is None:
            return f"the beginning of the job in {self.directory.path}"
        return f"the state of epoch {origin.epoch} in {self.directory.path}"

    def _rows(self, session: Any, origin: Origin | None) -> Any:
        """The rows of the state, in a session."""
        rows = None
        if origin is not None:
            query = self.directory.path_of(QUERY_NAME, origin.query, Restored)
            state = self.directory.path_of(KEYED_STATE_NAME, origin.keyed_state, Restored)
            deployed = DeployedClasses.of_job(self.program.job)
            rows = read_state(session, query, origin.epoch - origin.first_epoch, origin.levels, deployed, state)
        return session.createDataFrame([], SAVEPOINT_SCHEMA) if rows is None else rows

    # ------------------------------------------------------------------ what is done

    def _commit(self, epoch: int) -> None:
        """Commit the prepared epoch, as the query does when Spark delivers it again."""
        job, directory, location = self.program.job, self.directory, self.directory.query_location()
        prepare_sinks(self.spark, job)
        prepared = prepared_directory(location.path)
        files = EpochFiles(prepared, changelog_directory(directory.path), directory.keyed_state)
        deployment = deploy(job, partitions_of(job), location.first_epoch, directory.fence, files)
        batch = epoch - location.first_epoch
        directory.fence.check()
        try:
            with (
                numbers_announced(self.spark, deployment),
                AttemptFiles(location.path, deployment.version).running(self.settings.cancellation_timeout_s),
            ):
                announce_batch(self.spark, deployment, batch)
                report = EpochRunner(deployment).run(self.spark.range(0), epoch, lambda: None)
        except Exception as error:
            raise translate(error, f"{self._where}, epoch {epoch}", deployment.secret, epoch) from error
        directory.fence.check()
        self._count(report)
        QueryLog(location.path).commit(batch)

    def _count(self, report: EpochReport) -> None:
        """Add an epoch of the earlier program to the totals of the job."""
        structure = self.directory.structure()
        assert structure is not None, "the program differs from it"
        sources = range(len(structure.sources))
        read = sum(task.records_in for task in report.tasks if task.vertex in sources)
        report = replace(report, records_in=read)
        self.directory.write(with_epoch(noted_totals(self.directory), report, vertex_uids(structure)))

    def _write(self, step: UpgradeStep, restored: RestoredByFallback) -> None:
        """Write what the new query begins with."""
        job, directory = self.program.job, self.directory
        first_epoch = directory.query_location().first_epoch
        accumulators = accumulators_directory(directory.path)
        directory.write(restored, step.first_epoch)
        totals = AccumulatorFiles(accumulators, first_epoch).before(None)
        AccumulatorFiles(accumulators).begin(step.first_epoch, totals)
        directory.remember_upgrade(job, partitions_of(job), step.first_epoch)
