"""Runs a whole program in the test's process, without Spark, epoch by epoch, on the runtime that it has on Spark.

Time stands still unless the test moves it. A run can be let fail at any phase of an epoch, and goes on from what was
committed, with functions that have not run; a savepoint moves it to another program, or to another parallelism. What
each operator has received and emitted is on record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.job_id import JobID
from flinkish.core.output_tag import OutputTag
from flinkish.core.sink import WriterSink
from flinkish.core.source import SplitSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ProgramError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph, StreamNode
from flinkish.jobmanager.settings import job_settings
from flinkish.jobmanager.submitted_program import SubmittedProgram, captured
from flinkish.minicluster import MiniCluster, Passage, Passed, Recorder, StateStore
from flinkish.runtime.clock import ManualClock
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.operators.sink_writer import SinkWriterFactory
from flinkish.runtime.phases import Phase, hooked
from flinkish.testing.crash import SimulatedCrash
from flinkish.testing.output import StreamRecord, stream_records, tag_id
from flinkish.testing.savepoint import ProgramSavepoint, restore_savepoint, take_savepoint

#: Phases that an epoch passes in one process, in this order.
PHASES = (
    Phase.PLANNED,
    Phase.SOURCES_READ,
    Phase.LEVEL_PROCESSED,
    Phase.STATE_WRITTEN,
    Phase.EPOCH_PREPARED,
    Phase.COMMIT_BEGUN,
    Phase.SINK_COMMITTED,
    Phase.METADATA_COMMITTED,
)


@dataclass
class _PlannedCrash:
    phase: Phase
    times: int
    details: dict[str, Any] = field(default_factory=dict)

    def matches(self, phase: Phase, details: dict[str, Any]) -> bool:
        return self.times > 0 and phase is self.phase and self.details.items() <= details.items()


class ProgramTestHarness:
    """See the module. Use it as a context manager: functions are closed at the end, and a crash that was planned and
    never came is an error.

    Args:
        program: an environment in which a program was written; it is empty afterwards, as after ``execute``. Or a
            function without arguments that writes a program and calls ``execute``, which does not return.
        restored: a savepoint to begin with.
        allow_non_restored_state: state of the savepoint may be dropped whose operator the program does not have.
        sources, sinks: what takes the place of a source or sink, by its uid or name.
        clock: gives each epoch its processing time.
        max_records_per_epoch: most records that each source gives in one epoch.
        state_directory: keyed state that is large goes to files there; "": it stays in memory.
    """

    def __init__(
        self,
        program: StreamExecutionEnvironment | Callable[[], Any],
        *,
        restored: ProgramSavepoint | None = None,
        allow_non_restored_state: bool = False,
        sources: Mapping[str, SplitSource] | None = None,
        sinks: Mapping[str, WriterSink] | None = None,
        clock: ManualClock | None = None,
        max_records_per_epoch: int | None = None,
        state_directory: str = "",
    ) -> None:
        submitted = captured(program) if callable(program) else _submitted(program)
        submitted.configuration.validate()
        _replace(submitted.graph, sources or {}, sinks or {})
        settings = job_settings(submitted.configuration)
        generator = JobGraphGenerator(submitted.graph, settings, submitted.chaining)
        job = generator.generate(JobID().to_hex_string(), submitted.name)
        self.clock = clock or ManualClock()
        self._store = StateStore(keyed_state=state_directory)
        if restored is not None:
            migrations = generator.migrations()
            job = restore_savepoint(restored, job, migrations, allow_non_restored_state, self._store)
        self._job = job
        self._max_records = max_records_per_epoch
        self._recorder = Recorder()
        self._crashes: list[_PlannedCrash] = []
        self._cluster = self._new_cluster()

    def __enter__(self) -> ProgramTestHarness:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()
        left = [crash for crash in self._crashes if crash.times > 0]
        if kind is None and left:
            raise ProgramError(
                f"a crash was planned that has not come: {left[0].phase.name}, {left[0].details}",
                expected="an epoch that passes this phase with these details",
                hint="run more epochs, or name the phase and its details as the engine has them",
            )

    def close(self) -> None:
        """Close the functions of the program."""
        self._cluster.dispose()

    # ------------------------------------------------------------------------------------------------ running

    @property
    def job(self) -> JobDescriptor:
        """The job graph."""
        return self._job

    @property
    def finished(self) -> bool:
        """Whether all input has come to its end, and all of it is committed."""
        return self._store.finished

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that `run_epoch` will run."""
        return self._store.next_epoch

    def run_epoch(self) -> EpochReport:
        """One epoch, all or nothing. After a failure the next call runs the same epoch again, from what was committed.

        Raises:
            SimulatedCrash: as it was planned.
            UserCodeError: a function has raised something; it is the error's cause.
        """
        if self._store.prepared is None:
            self._recorder.begin_epoch(self._store.next_epoch)
        with hooked(self._passed):
            return self._cluster.run_epoch()

    def run(self, max_epochs: int | None = None) -> int:
        """Epochs until all input has ended, or an epoch reads nothing, or so many; returns how many that were."""
        epochs = 0
        while not self.finished and (max_epochs is None or epochs < max_epochs):
            before = self._store.offset.get("sources")
            self.run_epoch()
            epochs += 1
            if self._store.offset.get("sources") == before:
                break
        return epochs

    def set_processing_time(self, time_ms: int) -> None:
        """Processing time of the epochs from the next one on."""
        self.clock.set(time_ms)

    def advance_processing_time(self, by_ms: int) -> None:
        """Let processing time pass before the next epoch."""
        self.clock.advance(by_ms)

    # ------------------------------------------------------------------------------------------------ failures

    def crash(self) -> None:
        """All that is not stored is lost: functions are made anew, from what they were in the program."""
        self._cluster.dispose()
        self._cluster = self._new_cluster()

    def crash_at(self, phase: Phase, times: int = 1, **details: Any) -> None:
        """Let the run fail with `SimulatedCrash` when it next passes a phase, so many times.

        Args:
            phase: one of `PHASES`.
            details: which passage is meant, by what the engine says of it: ``epoch``; ``vertex`` and ``subtask``, where
                tasks pass it; ``sink`` (uid) and ``subtask``, where sinks commit.
        """
        if phase not in PHASES:
            names = ", ".join(one.name for one in PHASES)
            raise ProgramError(f"no epoch in one process passes the phase {phase.name}", expected=f"one of {names}")
        self._crashes.append(_PlannedCrash(phase, times, details))

    def _passed(self, phase: Phase, details: dict[str, Any]) -> None:
        for crash in self._crashes:
            if crash.matches(phase, details):
                crash.times -= 1
                raise SimulatedCrash(f"the job has crashed at {phase.name}, as the test wants it", where=f"{details}")

    def _new_cluster(self) -> MiniCluster:
        return MiniCluster(self._job, self.clock, self._store, self._max_records, self._recorder)

    # ------------------------------------------------------------------------------------------------ what there is

    def savepoint(self) -> ProgramSavepoint:
        """The state behind the last committed epoch. ``ProgramTestHarness(program, restored=...)`` goes on from it,
        with this program or another, of any parallelism."""
        return take_savepoint(self._job, self._store)

    def emitted(
        self,
        operator: str,
        tag: OutputTag | str | None = None,
        *,
        epoch: int | None = None,
        subtask: int | None = None,
    ) -> list[StreamRecord]:
        """What an operator has emitted, in order; of several subtasks, one after the other within an epoch.

        Args:
            operator: its uid or name.
            tag: a side output that somebody listens to; None: the main output.
            epoch, subtask: only that of one.
        """
        side = None if tag is None else tag_id(tag)
        found = self._found(operator, Passage.EMITTED, epoch, subtask)
        return [record for one in found if one.tag_id == side for record in _records(one)]

    def received(
        self, operator: str, input_index: int = 0, *, epoch: int | None = None, subtask: int | None = None
    ) -> list[StreamRecord]:
        """What an operator, or a sink, has received by one of its inputs."""
        found = self._found(operator, Passage.RECEIVED, epoch, subtask)
        return [record for one in found if one.input_index == input_index for record in _records(one)]

    def watermarks(self, operator: str, *, epoch: int | None = None, subtask: int | None = None) -> list[int]:
        """The watermarks that an operator has emitted, in ms."""
        found = self._found(operator, Passage.WATERMARK, epoch, subtask)
        return [one.watermark_ms for one in found if one.watermark_ms is not None]

    def _found(self, operator: str, passage: Passage, epoch: int | None, subtask: int | None) -> list[Passed]:
        uid = self._uid_of(operator)
        return [
            one
            for one in self._recorder.passed(epoch)
            if one.uid == uid and one.passage is passage and subtask in (None, one.subtask)
        ]

    def _uid_of(self, operator: str) -> str:
        names = {d.uid: d.name for vertex in self._job.vertices for d in vertex.operators}
        found = [operator] if operator in names else [uid for uid, name in names.items() if name == operator]
        if len(found) != 1:
            raise ProgramError(
                f"{len(found) or 'no'} operators are called {operator!r}",
                expected="one of " + ", ".join(f"{uid} ('{name}')" for uid, name in names.items()),
                hint="give the operator a uid, and use it",
            )
        return found[0]


def _records(passed: Passed) -> list[StreamRecord]:
    return stream_records(passed.values, passed.timestamps)


def _submitted(env: StreamExecutionEnvironment) -> SubmittedProgram:
    graph = env._checked_graph()
    env._program.clear()
    return SubmittedProgram(graph, Configuration(env._configuration), "program under test", env.is_chaining_enabled())


def _replace(graph: StreamGraph, sources: Mapping[str, SplitSource], sinks: Mapping[str, WriterSink]) -> None:
    """Put sources and sinks into the place of those of the program."""
    for name, source in sources.items():
        _node(graph, name, "source", lambda node: node.source is not None).source = source
    for name, sink in sinks.items():
        node = _node(graph, name, "sink", lambda node: node.sink is not None)
        node.sink, node.factory = sink, SinkWriterFactory(sink, node.output_type, f"sink '{node.name}'")


def _node(graph: StreamGraph, name: str, kind: str, fits: Callable[[StreamNode], bool]) -> StreamNode:
    nodes = [node for node in graph.nodes if fits(node)]
    prefix = f"{kind.capitalize()}: "
    found = [node for node in nodes if name in (node.effective_uid, node.name, node.name.removeprefix(prefix))]
    if len(found) != 1:
        known = ", ".join(f"{node.effective_uid} ('{node.name}')" for node in nodes)
        raise ProgramError(f"{len(found) or 'no'} {kind}s are called {name!r}", expected=f"one of {known}")
    return found[0]
