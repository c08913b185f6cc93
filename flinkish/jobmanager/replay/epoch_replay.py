"""Runs an epoch again, with the program as it is now, from the state and the positions that the epoch began with.

Sinks are not involved: their writers do not run. State files are read in place and are not changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from flinkish.checkpoint.claim import read_restored, restored_watermarks
from flinkish.common.dependencies import dependencies_of
from flinkish.core.source import DataFrameSource
from flinkish.errors import FinalOperationError, ProgramError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.waiting_epoch import existing_directory
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.replay.debugging import breakpoints_of, post_mortem
from flinkish.jobmanager.replay.replay_report import ReplayReport
from flinkish.jobmanager.replay.retained_epoch import RetainedEpoch, put_restored, retained_epoch, state_before
from flinkish.jobmanager.submitted_program import SubmittedProgram
from flinkish.launch.replay import ReplayRequest
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.sources.job_enumerator import coordinated_sources
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.stored.classes import files_here
from flinkish.runtime.task.task import EpochStamp
from flinkish.spark.place import partitions_of

#: A size in bytes that no state reaches, so that all state stays with the tasks and none is written to files.
_UNBOUNDED = 2**62


class _SilentSink(StreamOperator):
    """Takes the place of a sink's writer and drops all records."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Drop the records."""


@dataclass(frozen=True)
class _SilentSinkFactory(OperatorFactoryBase):
    def create(self) -> _SilentSink:
        return _SilentSink()


class EpochReplay:
    """One replay of one epoch, which writes nothing to the job's directory and claims nothing.

    Args:
        program: the program that the user has submitted.
        request: the epoch to replay, and what to show of it.
        session: gives the Spark session that reads the state; only called when there is state to read.

    Raises:
        FinalOperationError: the directory is not that of a job, the epoch is not retained, or Spark reads a source.
        ProgramError: the requested subtask does not exist.
    """

    def __init__(self, program: SubmittedProgram, request: ReplayRequest, session: Callable[[], Any]) -> None:
        self.request = request
        self._directory = existing_directory(request.directory)
        self._session = session
        generator = JobGraphGenerator(program.graph, job_settings(program.configuration), program.chaining)
        for vertex, source in generator.sources().items():
            if isinstance(source, DataFrameSource):
                raise _read_by_spark(generator, vertex, program.name)
        generator.with_shipped_files(files_here(dependencies_of(program.configuration)))
        self.job = self._job(generator, program.name)
        self.retained: RetainedEpoch = retained_epoch(self._directory, request.epoch)
        self.only = _only(self.job, request.subtask)
        self.report = ReplayReport(self.job, request.limit, self.only)
        #: the exception that the epoch has failed with
        self.failure: Exception | None = None

    def _job(self, generator: JobGraphGenerator, name: str) -> JobDescriptor:
        directory: JobDirectory = self._directory
        location = directory.query_file()
        if location is not None and location.name.startswith("minicluster"):
            raise FinalOperationError(
                "an epoch that has run in the minicluster cannot be replayed: its state is not retained",
                where=f"job '{name}', directory {directory.path}",
                expected="the directory of a job that runs on Spark",
                hint="start the job again, under a debugger if need be: it runs the epoch that has failed",
            )
        job = generator.generate(directory.job_id() or "", name)
        directory.check_compatible(job, partitions_of(job))
        attempts = (directory.read("attempts.json") or {"attempts": 1})["attempts"]
        settings = replace(
            job.settings, inline_state_bytes=_UNBOUNDED, managed_memory_bytes=_UNBOUNDED, changelog=False
        )
        return replace(
            job,
            vertices=tuple(_without_writers(vertex) for vertex in job.vertices),
            sinks=(),
            settings=settings,
            attempt=attempts - 1,
            restored_watermarks=restored_watermarks(job, read_restored(directory)),
        )

    def run(self) -> None:
        """Run the epoch. If it fails, its exception is kept in ``failure``."""
        job, retained = self.job, self.retained
        needs_state = retained.batch > 0 and job.levels > 0
        store = StateStore(
            tasks=state_before(self._session(), job, retained) if needs_state else {},
            next_epoch=retained.epoch,
            offset=retained.start,
            planned=retained.end,
            segments=SegmentFiles(self._directory.path),
            keyed_state=self._directory.keyed_state,
            read_only=True,
        )
        restored = read_restored(self._directory) if retained.batch == 0 else None
        if restored is not None:
            put_restored(self._directory, restored, {one.uid for one in coordinated_sources(job)}, store)
        cluster = MiniCluster(job, store=store, listener=self.report)
        # the tasks of a job that ends by itself are not called without data
        heartbeat = not all(vertex.bounded for vertex in job.vertices if vertex.source is not None)
        try:
            with breakpoints_of(self.only), job.settings.shipped.entered_here():
                cluster.run_tasks(retained.end, EpochStamp(retained.epoch, retained.time_ms), heartbeat)
        except Exception as error:
            self.failure = error
        finally:
            cluster.dispose()

    def describe(self) -> dict[str, Any]:
        """The result of the replay as values that JSON can hold."""
        return {
            "job": self.job.name,
            "directory": self._directory.path,
            "epoch": self.retained.epoch,
            "committed": self.retained.committed,
            "time_ms": self.retained.time_ms,
            "operators": self.report.operators(),
            "failure": None if self.failure is None else str(self.failure),
        }

    def text(self) -> str:
        """The result of the replay as text for people."""
        what = "committed" if self.retained.committed else "not committed"
        head = (
            f"job '{self.job.name}', epoch {self.retained.epoch} ({what}), processing time {self.retained.time_ms} ms: "
            + ("it has run to its end" if self.failure is None else "it has failed")
        )
        return f"{head}\n{self.report.text()}"


def end_with_replay(program: SubmittedProgram, request: ReplayRequest, session: Any = None) -> NoReturn:
    """Carry out ``flinkish replay`` in the program's process instead of running the job, print the report, and end the
    program: with exit code 0, or with the exception that the epoch has failed with."""

    def get() -> Any:
        from flinkish.spark.session import get_session

        return session if session is not None else get_session(program.configuration, program.name)

    replay = EpochReplay(program, request, get)
    replay.run()
    shown = json.dumps(replay.describe(), indent=1) if request.json else replay.text()
    sys.stdout.write(shown + "\n")
    sys.stdout.flush()
    if replay.failure is None:
        raise SystemExit(0)
    if request.pdb:
        post_mortem(replay.failure)
    raise replay.failure


def _without_writers(vertex: VertexDescriptor) -> VertexDescriptor:
    def silent(descriptor: OperatorDescriptor) -> OperatorDescriptor:
        return descriptor if descriptor.sink is None else replace(descriptor, factory=_SilentSinkFactory(), sink=None)

    return replace(vertex, operators=tuple(map(silent, vertex.operators)))


def _read_by_spark(generator: JobGraphGenerator, vertex: int, name: str) -> FinalOperationError:
    source = generator.generate("", name).vertex(vertex)
    return FinalOperationError(
        f"the source '{source.name}' is read by Spark",
        where=f"job '{name}'",
        expected="sources that Python reads (not Delta, not from_spark)",
        hint="which task has read which records is for Spark to plan, so one process cannot read them in that order",
    )


def _only(job: JobDescriptor, subtask: str) -> tuple[int, int] | None:
    """The (vertex, subtask) that ``uid/index`` names; None: no subtask is named."""
    if not subtask:
        return None
    uid, _, number = subtask.rpartition("/")
    places = {descriptor.uid: vertex for vertex in job.vertices for descriptor in vertex.operators}
    if uid not in places or not number.isdecimal() or int(number) >= places[uid].parallelism:
        known = ", ".join(f"{uid}/0 ... {uid}/{vertex.parallelism - 1}" for uid, vertex in places.items())
        raise ProgramError(f"the job has no subtask {subtask!r}", expected=f"one of {known}")
    return places[uid].id, int(number)
