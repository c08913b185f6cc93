"""Descriptions of all that a task needs to run; they are frozen and travel from the driver to the workers.

``graph`` creates them (Flink's TaskDeploymentDescriptor), and ``runtime`` reads them.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import Sink
from flinkish.core.source import RecordDecoder, Source, SourceLimits, SplitSource
from flinkish.runtime.exchange.gate import end_of_subtask, origin_name
from flinkish.runtime.exchange.partitioners import EdgeDescriptor, InputDescriptor
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.state.limits import DEFAULT_BYTES
from flinkish.runtime.stored.classes import NO_CLASSES, NO_FILES, ProgramClasses, ShippedFiles
from flinkish.runtime.stored.pickling import own_copy, unserializable

#: The vertex number of the rows that carry a task's report.
REPORT_VERTEX = -1

#: The vertex number of the rows that carry the changelog of a subtask's state (below the numbers of all sinks).
CHANGELOG_VERTEX = -(2**30)


def sink_vertex(sink_id: int) -> int:
    """The vertex number of the rows for a sink."""
    return -2 - sink_id


def sink_of(vertex: int) -> int:
    """The number of the sink that rows with this vertex number belong to."""
    return -2 - vertex


def is_sink_vertex(vertex: int) -> bool:
    """Whether rows with this vertex number belong to a sink."""
    return CHANGELOG_VERTEX < vertex <= sink_vertex(0)


@dataclass(frozen=True)
class OperatorDescriptor:
    """One operator of a chain. ``parent`` is the index of the operator in the chain that feeds it, or -1 if it
    receives the input of the chain."""

    uid: str
    name: str
    factory: OperatorFactory
    parent: int = -1
    parent_tag: str | None = None
    edges: tuple[EdgeDescriptor, ...] = ()
    #: number of the sink that this operator is the writer of
    sink: int | None = None
    #: whether the user chose the uid
    uid_given: bool = False
    #: what it does, in the words of its query or of ``set_description``; long ones without their middle
    description: str = field(default="", compare=False, repr=False)
    #: the line of the program that has added the operator, as a traceback shows it
    added_at: str = field(default="", compare=False, repr=False)
    #: the warnings that were given of the operator in this process
    warnings: set[str] = field(default_factory=set, compare=False, repr=False)


@dataclass(frozen=True)
class VertexDescriptor:
    """A chain of operators that runs as one task per subtask (Flink's job vertex)."""

    id: int
    name: str
    level: int
    operators: tuple[OperatorDescriptor, ...]
    parallelism: int
    max_parallelism: int
    inputs: tuple[InputDescriptor, ...] = ()
    #: one key selector for each input of a keyed vertex
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    #: the declared type of the key
    key_type: TypeInformation | None = None
    keyed: bool = False
    #: in a source vertex: the source, or the decoder that makes its records in the worker
    source: Source | RecordDecoder | None = None
    bounded: bool = False
    #: must be called in every epoch, even without data: this vertex or one downstream of it may have processing-time
    #: timers, or idleness detection
    clocked: bool = False
    #: the same, unless only functions of the program may have such timers
    regular: bool = False
    #: in a source vertex: whether any operator reads the timestamps of its records
    with_timestamps: bool = True
    #: in a source vertex: the numbers of the sources that must have ended before this one is read
    waits_for: tuple[int, ...] = ()

    @property
    def head(self) -> OperatorDescriptor:
        """The operator that receives the input."""
        return self.operators[0]

    @property
    def one_stream(self) -> bool:
        """Whether each subtask is one origin: it is no source, or it reads its splits one after the other."""
        source = self.source
        return source is None or isinstance(source, SplitSource) and not source.side_by_side and source.stages == 1

    def end_of(self, subtask: int) -> str:
        """The origin by whose end a subtask says that it has ended."""
        return origin_name(self.id, subtask) if self.one_stream else end_of_subtask(self.id, subtask)

    @property
    def stateful(self) -> bool:
        """Whether its tasks keep keyed state or operator state."""
        return self.keyed or any(operator.factory.has_operator_state for operator in self.operators)

    def with_own_functions(self, job: str = "", share: bool = False) -> VertexDescriptor:
        """This vertex for one subtask: operators, partitioners and key selectors have functions of their own each, as
        from pickles of their own (`own_copy`), so that they share no memory with each other, with other subtasks and
        with the program, and so that a failed task is recreated from functions that have not run.

        Args:
            job: name of the job, for errors.
            share: functions, and what they capture, stay those of the program; only instances of classes are copied.

        Raises:
            UnserializableFunctionError: a function cannot be copied; the error names the operator.
        """
        within = f"job '{job}', " if job else ""

        def own(descriptor: OperatorDescriptor) -> OperatorDescriptor:
            where = f"{within}operator '{descriptor.name}' (uid {descriptor.uid})"
            if share:
                return replace(descriptor, factory=_shallow_copy(descriptor.factory, where))
            edges = (replace(edge, partitioner=own_copy(edge.partitioner, where)) for edge in descriptor.edges)
            return replace(descriptor, factory=own_copy(descriptor.factory, where), edges=tuple(edges))

        operators = tuple(map(own, self.operators))
        if share or not self.key_selectors:
            return replace(self, operators=operators)
        where = f"{within}key selectors of '{self.head.name}' (uid {self.head.uid})"
        return replace(self, operators=operators, key_selectors=own_copy(self.key_selectors, where))

    def own_source(self, share: bool = False) -> Source | RecordDecoder | None:
        """A copy of the source, for one subtask or for planning, with functions of its own; `share` as for
        `with_own_functions`: the source itself."""
        if share or self.source is None:
            return self.source
        return own_copy(self.source, f"source '{self.head.name}' (uid {self.head.uid})")

    def task_name(self, subtask: int) -> str:
        """The name of one subtask as Flink shows it, such as ``Map -> Sink (1/2)``."""
        return f"{self.name} ({subtask + 1}/{self.parallelism})"


def _shallow_copy(factory: OperatorFactory, where: str) -> OperatorFactory:
    try:
        return copy.deepcopy(factory)
    except Exception as error:
        raise unserializable(error, where) from error


@dataclass(frozen=True)
class SinkDescriptor:
    """A sink: the place where committables or records leave the dataflow."""

    id: int
    uid: str
    name: str
    sink: Sink
    parallelism: int
    #: the type of the records, for DataFrame sinks
    input_type: Any = None
    #: whether the program chose the uid
    uid_given: bool = False

    @property
    def identity(self) -> str:
        """The name under which a prepared epoch holds what is for this sink: its uid; with a generated uid, which
        depends on the sink's position in the program, also where the sink writes to."""
        return self.uid if self.uid_given else f"{self.uid}: {self.sink._destination}"


@dataclass(frozen=True)
class JobSettings:
    """The part of the configuration that every task needs."""

    source_batch_size: int = 1_000
    #: whether stored state of operators that the program does not have is given up
    ignore_unclaimed_state: bool = False
    #: the uids of operators whose state an earlier start has given up
    given_up: tuple[str, ...] = ()
    source_max_record_bytes: int = 64 * 1024 * 1024
    buffer_max_records: int = 20_000
    buffer_max_bytes: int = 16 * 1024 * 1024
    #: the most that an epoch reads of a source; None: as much as `source_limits` says
    max_records_per_epoch: int | None = None
    max_bytes_per_epoch: int | None = None
    #: how long an epoch is to take; 0: it reads as much as the limits allow
    epoch_target_ms: int = 0
    auto_watermark_interval_ms: int = 200
    managed_memory_bytes: int = DEFAULT_BYTES
    #: keyed state of a subtask up to about this size is stored with the task, larger state in files
    inline_state_bytes: int = 256 * 1024
    #: folder on the executors' disks for copies of state files; "" means one that Spark provides, where it is needed
    local_state_root: str = ""
    #: state files are copied to the executors' disks even if the job directory is local
    recover_from_local: bool = False
    #: number of other executors that keep copies of each subtask's state files
    standby_replicas: int = 0
    #: most Spark tasks of a level or of a source; None: one per subtask
    spark_partitions: int | None = None
    job_parameters: dict[str, str] = field(default_factory=dict, repr=False)
    #: name of each cached file -> its path on the node of the task
    cached_files: dict[str, str] = field(default_factory=dict)
    #: files that the driver has shipped in addition to the program
    shipped: ShippedFiles = NO_FILES
    configuration: dict[str, str] = field(default_factory=dict, repr=False)
    #: tasks report what each epoch changes in their state, for incremental checkpoints
    changelog: bool = False
    #: installed packages whose classes stored values may be instances of
    state_packages: tuple[str, ...] = ()
    #: time after which a call of a function that has not returned is named; 0: never
    slow_call_warning_ms: int = 30_000
    #: workers look whether stacks of their tasks are asked for
    flame_graphs: bool = False
    #: errors and warnings name the record and the key that user code was called with
    names_records: bool = True
    #: tasks note the calls of the lifecycle of their operators
    trace_lifecycle: bool = False
    #: in the minicluster: operators and subtasks call the very functions of the program, and share what these capture
    share_functions: bool = False

    def source_limits(self, parallelism: int) -> SourceLimits:
        """The most that an epoch reads of a source of this parallelism. By default it grows with the parallelism, so
        that a wide source is not held to what two subtasks can read."""
        wide = max(parallelism, 2)
        return SourceLimits(
            self.max_records_per_epoch or wide * 2_000_000,
            self.max_bytes_per_epoch or wide * 128 * 1024 * 1024,
            self.source_batch_size,
        )


def slots_of_levels(vertices: Iterable[tuple[int, int]], most: int | None) -> int:
    """The number of task slots in which each level of a job runs at once, i.e. of the Spark tasks of the widest level:
    one for each subtask of each source; behind a shuffle, the subtasks of a number share a task, as they share a slot
    in Flink.

    Args:
        vertices: the level and the parallelism of each vertex.
        most: the most tasks of a level, and of a source; None: there is no such limit.

    >>> slots_of_levels([(0, 2), (0, 2), (1, 3), (1, 2)], None), slots_of_levels([(0, 2), (0, 2), (1, 3)], 1)
    (4, 2)
    """
    widths = Counter[int]()
    for level, parallelism in vertices:
        tasks = min(parallelism, most or parallelism)
        widths[level] = max(widths[level], tasks) if level else widths[level] + tasks
    return max(widths.values(), default=1)


@dataclass(frozen=True)
class JobDescriptor:
    """The job graph, with all settings that its tasks need."""

    job_id: str
    name: str
    vertices: tuple[VertexDescriptor, ...]
    sinks: tuple[SinkDescriptor, ...]
    settings: JobSettings = JobSettings()
    attempt: int = 0
    #: vertex -> watermark of its subtasks in the savepoint that the job was started from
    restored_watermarks: dict[int, int] = field(default_factory=dict)
    #: vertex -> origin -> (input, watermark, idle?): what sources have told it according to that savepoint
    restored_origins: dict[int, dict[str, tuple[int, int, bool]]] = field(default_factory=dict)
    #: the vertices whose input had ended, according to that savepoint
    restored_ended: frozenset[int] = frozenset()
    #: the job was started from a savepoint
    restored: bool = False
    #: the classes of the program, whose instances stored values may hold
    classes: ProgramClasses = field(default=NO_CLASSES, repr=False, compare=False)

    def with_own_functions(self) -> JobDescriptor:
        """This job with functions of its own, as if it had travelled: what the program does with its functions later on
        does not change them. The same job if its settings say that functions are shared.

        Raises:
            UnserializableFunctionError: a function cannot be copied; the error names the operator.
        """
        if self.settings.share_functions:
            return self
        own = (replace(one.with_own_functions(self.name), source=one.own_source()) for one in self.vertices)
        return replace(self, vertices=tuple(own))

    def vertex(self, vertex_id: int) -> VertexDescriptor:
        """The vertex of that number, which is its index in ``vertices``."""
        return self.vertices[vertex_id]

    @property
    def levels(self) -> int:
        """The number of levels, not counting that of the sources."""
        return max((vertex.level for vertex in self.vertices), default=0)

    @property
    def required_slots(self) -> int:
        """The number of task slots in which each level runs at once (`slots_of_levels`)."""
        widths = ((vertex.level, vertex.parallelism) for vertex in self.vertices)
        return slots_of_levels(widths, self.settings.spark_partitions)

    def sink(self, sink_id: int) -> SinkDescriptor:
        """The sink of that number."""
        return self.sinks[sink_id]
