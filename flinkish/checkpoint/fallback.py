"""Takes a job back to its last completed checkpoint in Delta when Spark's own checkpoint of the query is damaged, if it
can be decided that the job may go back.

Rule: a new query takes the place of the damaged one in one step (``query-location.json``); before it nothing of the job
has changed, after it the damaged files are not read any more. They stay where they are, so that they can be examined.

    <job dir>/restore-epoch-<first epoch>/    the checkpoint's rows
    <job dir>/ (`RestoredByFallback`)          positions and watermarks of the checkpoint
    <job dir>/accumulators/before-<first epoch>.json   totals of the accumulators as of the checkpoint
    <job dir>/query-location.json             spark-<first epoch>, whose epochs follow all that were ever planned
"""

from __future__ import annotations

import base64
import posixpath
from dataclasses import dataclass
from typing import Any

from flinkish.checkpoint.claim import read_restored
from flinkish.checkpoint.manifest import CheckpointDirectory, Savepoint
from flinkish.checkpoint.restore import RestoredProgram, take_over
from flinkish.errors import CorruptStateError, FinalOperationError, SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import DrainMarker, Restored, RestoredByFallback
from flinkish.jobdir.query import Traces, read_traces
from flinkish.jobmanager.job.settings import DriverSettings, Fallback
from flinkish.runtime.job.accumulators import AccumulatorFiles, accumulators_directory
from flinkish.runtime.phases import Phase, SystemClock, passed
from flinkish.storage.files import delete_directory


@dataclass(frozen=True)
class Candidate:
    """A completed checkpoint to which the job may go back."""

    path: str
    epoch: int


@dataclass(frozen=True)
class Decision:
    """To which checkpoint the job goes back. ``checkpoint`` None: that is refused."""

    checkpoint: Candidate | None
    #: epochs that are delivered to sinks again
    repeated: range
    #: number of the first epoch after the job has gone back
    first_epoch: int
    #: why it is refused; empty if it is not
    refusal: str = ""


def decide(mode: Fallback, traces: Traces, candidate: Candidate | None, idempotent: bool = False) -> Decision:
    """Decide what to do about a damaged query.

    Args:
        mode: the configuration.
        traces: those of the query.
        candidate: the newest usable checkpoint; None: there is none.
        idempotent: whether all sinks are (`Sink.is_idempotent`).

    Rule: nothing but the names of files, the sinks and the configuration decides. Epochs are numbered without gaps, and
    sinks hear of an epoch only when it is prepared; its file is deleted when Spark has committed later epochs. So the
    last epoch that any sink can have heard of is known from names alone, also when the files themselves are damaged:
    the highest of ``prepared`` and ``commits``, or the one before the last that was planned or has state (Spark plans
    an epoch when the one before it is committed). With a checkpoint at the end of that very epoch nothing is repeated
    (*exact*). Otherwise epochs after it have been delivered to sinks already and would be delivered again (*replay*),
    which makes no difference to idempotent ones.
    """
    if candidate is None:
        return Decision(None, range(0), 0, "there is no completed checkpoint")
    last = max(candidate.epoch, -1 if traces.last_delivered is None else traces.last_delivered)
    repeated = range(candidate.epoch + 1, last + 1)
    # numbers of epochs that were only planned are not used again either
    first_epoch = max(last, *traces.planned) + 1 if traces.planned else last + 1
    # without the offsets of the checkpoint's epoch those of later ones may be gone as well
    exact = not repeated and candidate.epoch in traces.planned
    if mode is Fallback.NEVER:
        return Decision(None, repeated, first_epoch, "flinkish.recovery.fallback is 'never'")
    if mode is Fallback.EXACT and not (exact or idempotent):
        return Decision(None, repeated, first_epoch, _why_not(candidate, repeated))
    return Decision(candidate, repeated, first_epoch)


def _why_not(candidate: Candidate, repeated: range) -> str:
    if repeated:
        return (
            f"the last completed checkpoint is of epoch {candidate.epoch}, and epochs up to {repeated[-1]} have been "
            "delivered: what they gave to sinks would be given again"
        )
    return f"the offsets of epoch {candidate.epoch} are gone: it is not known which epochs were delivered behind it"


@dataclass(frozen=True)
class QueryFallback:
    """Replaces the damaged query of one job by a query that begins with a checkpoint."""

    spark: Any
    settings: DriverSettings
    directory: JobDirectory
    checkpoints: CheckpointDirectory

    def recover(self, program: RestoredProgram, error: CorruptStateError) -> str:
        """Let the job's next attempt begin with the last usable checkpoint; returns a text that says what was done.

        Raises:
            FinalOperationError: that is not possible, or not allowed; the error names the damaged file, the checkpoint
                that could be used, and how.
        """
        self._check_ours(error)
        traces = self._traces()
        self._check_not_in_vain(program, error, traces)
        problems: list[str] = []
        idempotent = all(sink.sink.is_idempotent for sink in program.job.sinks)
        for candidate in self._candidates(problems):
            decision = decide(self.settings.fallback, traces, candidate, idempotent)
            if decision.checkpoint is None:
                raise self._refused(error, decision, candidate, problems)
            try:
                self._move_to(program, decision.checkpoint, decision.first_epoch)
            except (SavepointError, CorruptStateError) as unusable:
                problems.append(f"{candidate.path}: {unusable.what}")
                continue
            return self._message(error, decision, idempotent, problems)
        raise self._refused(error, decide(self.settings.fallback, traces, None), None, problems)

    # ------------------------------------------------------------------ whether it is possible

    def _check_ours(self, error: CorruptStateError) -> None:
        """Raise if the damaged file is none of the job's own, which is no reason to go back, or if the job is being
        drained, from which there is no way back."""
        ours = (self.directory.path, self.checkpoints.path)
        if error.file and not any(error.file.startswith(path.rstrip("/") + "/") for path in ours):
            raise FinalOperationError(
                error.what, where=error.where, expected="a file that can be read", hint="restore the file from a copy"
            ) from error
        if self.directory.read(DrainMarker) is not None:
            raise FinalOperationError(
                f"{error.what}, in the midst of a drain",
                where=error.where,
                hint="restore the file from a copy, or start the job in a new directory from its last checkpoint or "
                "savepoint",
            ) from error

    def _traces(self) -> Traces:
        return read_traces(self.directory.query_location())

    def _check_not_in_vain(self, program: RestoredProgram, error: CorruptStateError, traces: Traces) -> None:
        """Raise if the query has itself begun with a checkpoint and committed nothing: it would get no further."""
        began = read_restored(self.directory)
        if began is not None and began.checkpoint and not traces.committed:
            raise FinalOperationError(
                f"{error.what}, right after the job went back to the checkpoint {began.checkpoint}",
                where=f"job '{program.job.name}'; {error.where}",
                hint="start the job in a new directory from an older checkpoint or from a savepoint",
            ) from error

    def _candidates(self, problems: list[str]) -> list[Candidate]:
        """The completed checkpoints, newest first. What makes others unreadable is added to ``problems``."""
        found = []
        for number in reversed(self.checkpoints.completed()):
            try:
                epoch = self.checkpoints.read(number).epoch
            except SavepointError as error:
                problems.append(f"{self.checkpoints.checkpoint(number)}: {error.what}")
                continue
            if epoch is not None:
                found.append(Candidate(self.checkpoints.checkpoint(number), epoch))
        return found

    # ------------------------------------------------------------------ how it is done

    def _move_to(self, program: RestoredProgram, checkpoint: Candidate, first_epoch: int) -> None:
        target = self.directory.fallback_rows(first_epoch)
        opened = Savepoint.open(checkpoint.path)
        manifest = opened.manifest
        report, times = take_over(self.spark, program, self.settings, opened, target)
        if not report.compatible:
            delete_directory(target)
            raise FinalOperationError("; ".join(report.problems), hint="; ".join(report.hints))
        before = read_restored(self.directory) or Restored()
        passed(Phase.FALLBACK_PREPARED, epoch=checkpoint.epoch)
        restored = RestoredByFallback(
            before.savepoint,
            before.path,
            posixpath.basename(target),
            before.claim_mode,
            manifest.sources,
            times.watermarks,
            SystemClock().now_ms(),
            checkpoint=checkpoint.path,
            splits=times.splits,
        )
        self.directory.write(restored, first_epoch)
        if manifest.accumulators is not None:
            files = AccumulatorFiles(accumulators_directory(self.directory.path))
            files.begin(first_epoch, base64.b64decode(manifest.accumulators))
        # files that an interrupted fallback, or a copy of the directory, has left
        delete_directory(posixpath.join(self.directory.path, f"spark-{first_epoch}"))
        self.directory.move_query(f"spark-{first_epoch}", first_epoch)
        passed(Phase.FALLBACK_DONE, epoch=first_epoch)

    # ------------------------------------------------------------------ messages

    def _message(self, error: CorruptStateError, decision: Decision, idempotent: bool, problems: list[str]) -> str:
        assert decision.checkpoint is not None
        text = f"{error.what}: the job goes on from the checkpoint {decision.checkpoint.path} of epoch "
        text += f"{decision.checkpoint.epoch}"
        if decision.repeated:
            why = (
                ": all sinks are idempotent"
                if idempotent
                else " (flinkish.recovery.fallback: replay): sinks that are not idempotent get their records again"
            )
            text += f"; epochs {decision.repeated[0]} to {decision.repeated[-1]} are repeated{why}"
        else:
            text += "; nothing is repeated"
        return text + "".join(f"; not usable: {problem}" for problem in problems)

    def _refused(
        self,
        error: CorruptStateError,
        decision: Decision,
        candidate: Candidate | None,
        problems: list[str] | None = None,
    ) -> FinalOperationError:
        hint = error.hint
        if candidate is not None:
            hint = (
                "restore the file from a copy; or set flinkish.recovery.fallback: replay to go back to "
                f"{candidate.path} (epoch {candidate.epoch}): sinks that are idempotent stay right, others get the "
                f"records of {len(decision.repeated)} epochs again; or start the job from that checkpoint (-s) in a "
                "new directory"
            )
        unusable = "".join(f"; not usable: {problem}" for problem in problems or ())
        return FinalOperationError(
            f"{error.what}. The job does not go back by itself: {decision.refusal}{unusable}",
            where=error.where,
            hint=hint,
        )
