"""Runs an epoch again, with the program as it is now, from the state and the positions that the epoch began with; in
the debugger, if that is wanted, and with a report of what each operator has received and emitted.

Sinks are not involved: their writers do not run. State files are read in place and are not changed.
"""

from __future__ import annotations

import json
import pdb
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Any, NoReturn

from flinkish.checkpoint.claim import read_restored, with_restored_times
from flinkish.common.arguments import abbreviated
from flinkish.common.dependencies import dependencies_of
from flinkish.common.types import Row, RowKind
from flinkish.core.source import DataFrameSource
from flinkish.errors import FinalOperationError, ProgramError, UserCodeError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import Attempts, Job, QueryFile
from flinkish.jobdir.structure import parallelism_of
from flinkish.jobdir.waiting_epoch import existing_directory
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.replay.retained_epoch import RetainedEpoch, put_restored, retained_epoch, state_before
from flinkish.jobmanager.submitted_program import SubmittedProgram
from flinkish.launch.driver import ReplayRequest
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.sources.job_enumerator import coordinated_sources
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.stored.classes import files_here
from flinkish.runtime.task.task import EpochStamp, Task
from flinkish.spark.place import partitions_of


def place_of_failure(error: BaseException) -> TracebackType | None:
    """The traceback of the exception that user code has raised, also if the engine has raised a UserCodeError for it;
    otherwise that of the error itself."""
    original = error.__context__ if isinstance(error, UserCodeError) and error.__context__ is not None else error
    return original.__traceback__


def post_mortem(error: BaseException) -> None:
    """Open the debugger where the epoch has failed."""
    place = place_of_failure(error)
    if place is not None:
        pdb.post_mortem(place)


@contextmanager
def breakpoints_of(task: tuple[int, int] | None) -> Iterator[None]:
    """Within the block, ``breakpoint()`` stops only in this task, (vertex, subtask); None: in all tasks."""
    before = sys.breakpointhook

    def hook(*arguments: Any, **settings: Any) -> Any:
        frame = sys._getframe(1)
        if _task_of(frame) == task:
            pdb.Pdb().set_trace(frame)

    if task is not None:
        sys.breakpointhook = hook
    try:
        yield
    finally:
        sys.breakpointhook = before


def _task_of(frame: FrameType | None) -> tuple[int, int] | None:
    """The task, (vertex, subtask), that the frame or one of its callers belongs to; None: none."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Task):
            return owner.vertex.id, owner.subtask
        frame = frame.f_back
    return None


#: The most characters of a value that are shown.
_VALUE_CHARACTERS = 200

#: The number of an operator's last watermarks that are shown.
_WATERMARKS = 5


@dataclass
class Records:
    """The records of one input or output: their number, and the first ones as (text, timestamp in ms)."""

    count: int = 0
    shown: list[tuple[str, int | None]] = field(default_factory=list)

    def add(self, values: list[Any], timestamps: list[int] | None, limit: int) -> None:
        """Count a batch, and keep its first records as long as fewer than ``limit`` are kept."""
        for place in range(min(len(values), limit - len(self.shown))):
            text = abbreviated(value := values[place], _VALUE_CHARACTERS)
            if isinstance(value, Row) and value.get_row_kind() is not RowKind.INSERT:
                text = f"{value.get_row_kind()} {text}"
            self.shown.append((text, None if timestamps is None else timestamps[place]))
        self.count += len(values)

    def describe(self) -> dict[str, Any]:
        """The records as values that JSON can hold."""
        shown = [{"value": text, "timestamp": timestamp} for text, timestamp in self.shown]
        return {"count": self.count, "records": shown}

    def lines(self, what: str) -> list[str]:
        """The records as lines for people; ``what`` says which records they are."""
        lines = [f"  {what}: {self.count} record{'' if self.count == 1 else 's'}"]
        lines += [f"    {text}" + ("" if time is None else f" @ {time}") for text, time in self.shown]
        more = self.count - len(self.shown)
        return [*lines, f"    ... and {more} more"] if more else lines


@dataclass
class OperatorStory:
    """What one subtask of an operator has received, by input (from 0), and emitted, by the tag of the output (None: the
    main output)."""

    received: dict[int, Records] = field(default_factory=dict)
    emitted: dict[str | None, Records] = field(default_factory=dict)
    watermarks: int = 0
    last_watermarks: list[int] = field(default_factory=list)


class ReplayReport:
    """Listens to the operators of a job (`OperatorListener`), and reports what they have received and emitted.

    The report is a bounded selection of the records, as text and as JSON.

    Args:
        job: the job graph.
        limit: the most records that are shown of each input and output.
        only: (vertex, subtask) of the only task that is shown; None: all tasks.
    """

    def __init__(self, job: JobDescriptor, limit: int, only: tuple[int, int] | None) -> None:
        self._job = job
        self._limit = limit
        self._only = only
        self._vertex_of = {d.uid: vertex.id for vertex in job.vertices for d in vertex.operators}
        self._stories: dict[tuple[str, int], OperatorStory] = {}

    def _story(self, uid: str, subtask: int) -> OperatorStory | None:
        if self._only is not None and (self._vertex_of[uid], subtask) != self._only:
            return None
        return self._stories.setdefault((uid, subtask), OperatorStory())

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Add records that an operator has received on one input; see `OperatorListener`."""
        story = self._story(uid, subtask)
        if story is not None:
            story.received.setdefault(input_index, Records()).add(values, timestamps, self._limit)

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Add records that an operator has emitted to one output; see `OperatorListener`."""
        story = self._story(uid, subtask)
        if story is not None:
            story.emitted.setdefault(tag_id, Records()).add(values, timestamps, self._limit)

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """Add a watermark that an operator has emitted; see `OperatorListener`."""
        story = self._story(uid, subtask)
        if story is not None:
            story.watermarks += 1
            story.last_watermarks = [*story.last_watermarks, watermark_ms][-_WATERMARKS:]

    def operators(self) -> list[dict[str, Any]]:
        """The report as values that JSON can hold, in the order of the job's vertices. Subtasks of operators that have
        neither received nor emitted anything are left out."""
        found = []
        for vertex in self._job.vertices:
            for subtask in range(vertex.parallelism):
                for descriptor in vertex.operators:
                    story = self._stories.get((descriptor.uid, subtask))
                    if story is not None:
                        found.append(
                            {
                                "uid": descriptor.uid,
                                "name": descriptor.name,
                                "subtask": subtask,
                                "task": vertex.task_name(subtask),
                                "received": [
                                    {"input": index, **records.describe()}
                                    for index, records in sorted(story.received.items())
                                ],
                                "emitted": [
                                    {"tag": tag, **records.describe()} for tag, records in story.emitted.items()
                                ],
                                "watermarks": {"count": story.watermarks, "last": story.last_watermarks},
                            }
                        )
        return found

    def text(self) -> str:
        """The report as text for people."""
        lines: list[str] = []
        for vertex in self._job.vertices:
            for subtask in range(vertex.parallelism):
                for descriptor in vertex.operators:
                    story = self._stories.get((descriptor.uid, subtask))
                    if story is not None:
                        lines += [f"{descriptor.uid}/{subtask}  '{descriptor.name}' of {vertex.task_name(subtask)}"]
                        lines += _lines(story)
        return "\n".join(lines) if lines else "no operator has received or emitted anything"


def _lines(story: OperatorStory) -> list[str]:
    lines: list[str] = []
    for index, records in sorted(story.received.items()):
        lines += records.lines("received" if len(story.received) == 1 else f"received by input {index + 1}")
    for tag, records in story.emitted.items():
        lines += records.lines("emitted" if tag is None else f"emitted to side output '{tag}'")
    if story.watermarks:
        last = ", ".join(map(str, story.last_watermarks))
        lines.append(f"  watermarks: {story.watermarks}, the last ones {last}")
    return lines


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
        location = directory.read(QueryFile)
        if location is not None and location.name.startswith("minicluster"):
            raise FinalOperationError(
                "an epoch that has run in the minicluster cannot be replayed: its state is not retained",
                where=f"job '{name}', directory {directory.path}",
                expected="the directory of a job that runs on Spark",
                hint="start the job again, under a debugger if need be: it runs the epoch that has failed",
            )
        known = directory.read(Job)
        if known is not None:
            # operators that set none had that of the slots of the job's cluster
            before = parallelism_of(known.structure)
            unset = [
                node for node in generator.graph.nodes if node.parallelism is None and node.effective_uid in before
            ]
            generator.on_slots(before[unset[0].effective_uid] if unset else generator.graph.default_parallelism)
        job = generator.generate(directory.job_id() or "", name)
        directory.check_compatible(job, partitions_of(job))
        attempts = (directory.read(Attempts) or Attempts(1)).attempts
        settings = replace(
            job.settings, inline_state_bytes=_UNBOUNDED, managed_memory_bytes=_UNBOUNDED, changelog=False
        )
        return replace(
            with_restored_times(job, read_restored(directory)),
            vertices=tuple(_without_writers(vertex) for vertex in job.vertices),
            sinks=(),
            settings=settings,
            attempt=attempts - 1,
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
