"""Runs a whole program in the test's process, without Spark, epoch by epoch, on the runtime that it has on Spark.

Time stands still unless the test moves it. A test can let the run fail at any phase of an epoch; the run then goes on
from what was committed, with new instances of all functions. A savepoint moves it to another program, or to another
parallelism. What each operator has received and emitted is recorded.

The base classes of PyFlink's own tests (``pyflink.testing.test_case_utils``) are here, too, for tests of users that
derive from them: their environments run jobs in the test's process.
"""

from __future__ import annotations

import shutil
import tempfile
import unittest
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from flinkish.checkpoint.claim import with_event_times
from flinkish.checkpoint.compatibility import incompatible
from flinkish.checkpoint.plain_tables import positions_in, rows_in, take_in
from flinkish.common.configuration import Configuration
from flinkish.common.dependencies import dependencies_of
from flinkish.common.job_id import JobID
from flinkish.common.options.execution import TARGET
from flinkish.common.options.flinkish import MINICLUSTER_SHARE_FUNCTIONS
from flinkish.core.functions import OutputTag
from flinkish.core.sink import WriterSink
from flinkish.core.source import SplitSource
from flinkish.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from flinkish.errors import ProgramError, SavepointError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph, StreamNode
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.submitted_program import SubmittedProgram, arrived_in_worker, captured
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.operators.source_and_sink import SinkWriterFactory
from flinkish.runtime.phases import ManualClock, Phase, hooked
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, coordinated_sources
from flinkish.runtime.sources.progress import decode_position
from flinkish.runtime.state.saved.texts import SavepointColumns, SavepointRow
from flinkish.runtime.stored.classes import files_here
from flinkish.table import StreamTableEnvironment
from flinkish.testing.doubles import Passage, Passed, Recorder, SimulatedCrash, StreamRecord, stream_records, tag_id

__all__ = [
    "PHASES",
    "ProgramTestHarness",
    "PyFlinkBatchTableTestCase",
    "PyFlinkBatchTestCase",
    "PyFlinkITTestCase",
    "PyFlinkStreamTableTestCase",
    "PyFlinkStreamingTestCase",
    "PyFlinkTestCase",
    "PyFlinkUTTestCase",
]

_WHERE = "a savepoint in memory"


@dataclass(frozen=True)
class ProgramSavepoint:
    """The state of a program after an epoch, and the position of each of its sources by uid.

    It has the rows that a savepoint's table would have, in memory. They are processed like savepoints on Spark: state
    is converted to texts, compared with the states that the program declares, re-hashed for its parallelism, and taken
    in by the first epoch.
    """

    columns: tuple[SavepointColumns, ...]
    positions: dict[str, str]

    def rows(self, uid: str | None = None) -> list[SavepointRow]:
        """The rows that the savepoint's table would have, of one operator or of all."""
        return [row for columns in self.columns if uid in (None, columns.uid) for row in columns.rows()]


def take_savepoint(job: JobDescriptor, store: StateStore) -> ProgramSavepoint:
    """A savepoint of the last committed epoch.

    Raises:
        SavepointError: no epoch has been committed yet.
    """
    if store.offset == NOTHING_READ:
        raise SavepointError("no epoch has been committed yet", where=f"job '{job.name}'", hint="run an epoch first")
    return ProgramSavepoint(tuple(rows_in(job, store)), positions_in(job, store))


def restore_savepoint(
    savepoint: ProgramSavepoint,
    job: JobDescriptor,
    migrations: dict[tuple[str, str], Callable[[Any], Any]],
    allow_non_restored_state: bool,
    store: StateStore,
) -> JobDescriptor:
    """Put a savepoint into an empty store; returns the job with the watermarks that it begins with.

    Raises:
        SavepointError: the program cannot take in all of the savepoint; the message says what is left over, and why.
    """
    taken = take_in(_WHERE, savepoint.columns, savepoint.positions, job, migrations, allow_non_restored_state)
    if not taken.report.compatible:
        raise incompatible(taken.report, job)
    store.restored.extend(taken.rows)
    store.positions = {
        one.uid: decode_position(savepoint.positions[one.uid], one.uid, store.segments)
        for one in coordinated_sources(job)
        if one.uid in savepoint.positions
    }
    return replace(with_event_times(job, taken.times, savepoint.positions), restored=True)


#: The phases that an epoch passes when it runs in one process, in this order.
PHASES = (
    Phase.PLANNED,
    Phase.SOURCES_READ,
    Phase.LEVEL_PROCESSED,
    Phase.STATE_WRITTEN,
    Phase.EPOCH_PREPARED,
    Phase.COMMIT_BEGUN,
    Phase.SINK_COMMITTED,
    Phase.METADATA_COMMITTED,
    Phase.CLEANED_UP,
)


@dataclass
class _PlannedCrash:
    phase: Phase
    times: int
    details: dict[str, Any] = field(default_factory=dict)

    def matches(self, phase: Phase, details: dict[str, Any]) -> bool:
        return self.times > 0 and phase is self.phase and self.details.items() <= details.items()


class ProgramTestHarness:
    """Runs a program epoch by epoch in the test's process, lets it crash where the test wants it, takes savepoints of
    it, and shows what its operators have received and emitted.

    Use it as a context manager: at the end the functions are closed, and a planned crash that has not come is an error.

    Example::

        with ProgramTestHarness(env, sources={"clicks": TestingSource("a", Pause(), "b", End())}) as harness:
            harness.crash_at(Phase.EPOCH_PREPARED, epoch=1)
            try:
                harness.run()
            except SimulatedCrash:
                harness.run()
            assert harness.finished

    Args:
        program: an environment in which a program was built; it is empty afterwards, as after ``execute``. Or a
            function without arguments that builds a program and calls ``execute``, which does not return.
        restored: a savepoint to begin with.
        allow_non_restored_state: whether state of the savepoint may be dropped if the program lacks its operator.
        sources, sinks: uid or name of a source or sink -> the one that takes its place.
        clock: gives each epoch its processing time; None: a new clock.
        max_records_per_epoch: the most records that each source reads in one epoch; None: as the program is configured.
        state_directory: directory for the files of large keyed state; "": keyed state stays in memory.
        pickle_functions: whether functions and sources are pickled and unpickled, as on their way to the workers of
            Spark, and each operator and subtask has copies of its own, so that what Spark would refuse fails here.
            Functions then cannot leave anything in variables of the test. Needs PySpark, but neither a session nor
            Java. Otherwise functions are those of the test, and operators and subtasks share what they capture, unless
            the program sets ``flinkish.minicluster.share-functions: false``.

    Raises:
        ProgramError: the program is wrong, or has no source or sink of a name in ``sources`` or ``sinks``.
        SavepointError: the program cannot take in all of ``restored``.
        UnserializableFunctionError: with ``pickle_functions``, a function cannot be pickled.
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
        pickle_functions: bool = False,
    ) -> None:
        submitted = captured(program) if callable(program) else _submitted(program)
        submitted.configuration.validate()
        _replace(submitted.graph, sources or {}, sinks or {})
        settings = job_settings(submitted.configuration)
        if pickle_functions or not submitted.configuration.contains(MINICLUSTER_SHARE_FUNCTIONS):
            settings = replace(settings, share_functions=not pickle_functions)
        generator = JobGraphGenerator(submitted.graph, settings, submitted.chaining)
        generator.with_shipped_files(files_here(dependencies_of(submitted.configuration)))
        job = generator.generate(JobID().to_hex_string(), submitted.name)
        if pickle_functions:
            # sinks commit what the test looks at
            job = replace(arrived_in_worker(job), sinks=job.sinks)
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
        """Whether all input has ended and is committed."""
        return self._store.finished

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that `run_epoch` will run."""
        return self._store.next_epoch

    def run_epoch(self) -> EpochReport:
        """Run one epoch, all or nothing. After a failure, the next call runs the same epoch again.

        Raises:
            SimulatedCrash: the test has planned a crash in this epoch.
            UserCodeError: a function has raised an exception, which is the cause of this error.
        """
        if self._store.prepared is None:
            self._recorder.begin_epoch(self._store.next_epoch)
        with hooked(self._passed):
            return self._cluster.run_epoch()

    def run(self, max_epochs: int | None = None) -> int:
        """Run epochs until all input has ended, or an epoch has read nothing, or there were ``max_epochs``; returns the
        number of epochs that have run. Raises what `run_epoch` raises."""
        epochs = 0
        while not self.finished and (max_epochs is None or epochs < max_epochs):
            before = self._store.offset.get("sources")
            self.run_epoch()
            epochs += 1
            if self._store.offset.get("sources") == before:
                break
        return epochs

    def set_processing_time(self, time_ms: int) -> None:
        """Set the processing time, in ms, of the next epoch and of those after it."""
        self.clock.set(time_ms)

    def advance_processing_time(self, by_ms: int) -> None:
        """Let ``by_ms`` milliseconds of processing time pass before the next epoch."""
        self.clock.advance(by_ms)

    # ------------------------------------------------------------------------------------------------ failures

    def crash(self) -> None:
        """Crash between two epochs: all that is not stored is lost, and functions are new instances, as in the
        program."""
        self._cluster.dispose()
        self._cluster = self._new_cluster()

    def crash_at(self, phase: Phase, times: int = 1, **details: Any) -> None:
        """Let the run fail with `SimulatedCrash` the next ``times`` times that it passes a phase.

        Args:
            phase: one of `PHASES`.
            times: the number of crashes.
            details: conditions on the passage of the phase: ``epoch``; ``vertex`` and ``subtask`` for phases of tasks;
                ``sink`` (uid) and ``subtask`` for commits of sinks.

        Raises:
            ProgramError: an epoch in one process does not pass that phase.
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
        """A savepoint of the last committed epoch. ``ProgramTestHarness(program, restored=...)`` goes on from it, with
        this program or another one, of any parallelism.

        Raises:
            SavepointError: no epoch has been committed yet.
        """
        return take_savepoint(self._job, self._store)

    def emitted(
        self,
        operator: str,
        tag: OutputTag | str | None = None,
        *,
        epoch: int | None = None,
        subtask: int | None = None,
    ) -> list[StreamRecord]:
        """The records that an operator has emitted, in order; within an epoch subtask after subtask.

        Args:
            operator: the operator's uid or name.
            tag: a side output that somebody listens to; None: the main output.
            epoch, subtask: the only epoch, or the only subtask, whose records are returned; None: all.

        Raises:
            ProgramError: no operator, or more than one, is called so.
        """
        side = None if tag is None else tag_id(tag)
        found = self._found(operator, Passage.EMITTED, epoch, subtask)
        return [record for one in found if one.tag_id == side for record in _records(one)]

    def received(
        self, operator: str, input_index: int = 0, *, epoch: int | None = None, subtask: int | None = None
    ) -> list[StreamRecord]:
        """The records that an operator, or a sink, has received on one of its inputs (numbered from 0), in order."""
        found = self._found(operator, Passage.RECEIVED, epoch, subtask)
        return [record for one in found if one.input_index == input_index for record in _records(one)]

    def watermarks(self, operator: str, *, epoch: int | None = None, subtask: int | None = None) -> list[int]:
        """The watermarks that an operator has emitted, in ms, in order."""
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
    graph = env.get_stream_graph()
    env._program.clear()
    return SubmittedProgram(graph, Configuration(env._configuration), "program under test", env.is_chaining_enabled())


def _replace(graph: StreamGraph, sources: Mapping[str, SplitSource], sinks: Mapping[str, WriterSink]) -> None:
    """Replace sources and sinks of the program, which are given by uid or name."""
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


# ---------------------------------------------------------------------- PyFlink's base classes of tests


def _environment_of_tests(mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({TARGET.key: "minicluster"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(2).set_runtime_mode(mode)


class PyFlinkTestCase(unittest.TestCase):
    """The base class of all tests: each class of tests has a temporary folder, ``tempdir``."""

    tempdir: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.tempdir = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.tempdir, ignore_errors=True)

    @classmethod
    def assert_equals(cls, actual: Iterable[Any], expected: Iterable[Any]) -> None:
        """Check that both have the same elements, in any order."""
        found, wanted = sorted(actual), sorted(expected)
        assert found == wanted, f"{found!r} instead of {wanted!r}"

    def assert_equals_sorted(self, expected: Iterable[Any], actual: Iterable[Any]) -> None:
        """The same, as PyFlink's tests of streams have it."""
        self.assertEqual(sorted(expected), sorted(actual))  # noqa: PT009 - of a TestCase

    @classmethod
    def to_py_list(cls, actual: Iterable[Any]) -> list[Any]:
        return list(actual)


class PyFlinkUTTestCase(PyFlinkTestCase):
    """Each test has an environment of its own, ``env``, with the parallelism 2, and a table environment, ``t_env``."""

    def setUp(self) -> None:
        self.env = _environment_of_tests()
        self.t_env = StreamTableEnvironment.create(self.env)


class PyFlinkITTestCase(PyFlinkTestCase):
    """The tests of a class share an environment, ``env``, with the parallelism 2, and its table environment,
    ``t_env``."""

    env: ClassVar[StreamExecutionEnvironment]
    t_env: ClassVar[StreamTableEnvironment]
    _mode = RuntimeExecutionMode.STREAMING

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.env = _environment_of_tests(cls._mode)
        cls.t_env = StreamTableEnvironment.create(cls.env)


class PyFlinkStreamingTestCase(PyFlinkITTestCase):
    """The base class of tests in the runtime mode STREAMING."""


class PyFlinkBatchTestCase(PyFlinkITTestCase):
    """The base class of tests in the runtime mode BATCH."""

    _mode = RuntimeExecutionMode.BATCH


class PyFlinkStreamTableTestCase(PyFlinkStreamingTestCase):
    """The base class of tests of tables as sources and sinks of streams."""


class PyFlinkBatchTableTestCase(PyFlinkBatchTestCase):
    """The same in the runtime mode BATCH."""
