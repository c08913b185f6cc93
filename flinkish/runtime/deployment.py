"""What a task needs to know to run: frozen descriptions that travel from the driver to the workers.

``graph`` makes them (Flink's TaskDeploymentDescriptor); ``runtime`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import Sink
from flinkish.core.source import RecordDecoder, Source
from flinkish.runtime.operator import OperatorFactory
from flinkish.runtime.partitioners import Partitioner
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.shipped_files import NO_FILES, ShippedFiles
from flinkish.runtime.state.managed_memory import DEFAULT_BYTES

#: Vertex number of rows that carry a task's report.
REPORT_VERTEX = -1

#: Vertex number of rows that carry what an epoch has changed in a subtask's state (below those of all sinks).
CHANGELOG_VERTEX = -(2**30)


def sink_vertex(sink_id: int) -> int:
    """The vertex number under which rows for a sink travel."""
    return -2 - sink_id


def sink_of(vertex: int) -> int:
    """The sink that rows with this vertex number belong to."""
    return -2 - vertex


def is_sink_vertex(vertex: int) -> bool:
    """Whether rows with this vertex number belong to a sink."""
    return CHANGELOG_VERTEX < vertex <= sink_vertex(0)


@dataclass(frozen=True)
class EdgeDescriptor:
    """An out-edge of an operator, to another vertex."""

    target: int
    input_index: int
    partitioner: Partitioner
    target_parallelism: int
    tag: str | None = None
    #: send every subtask something in every epoch, even when no watermark was ever seen (processing-time timers)
    always_call: bool = False
    #: tells apart several edges between the same two vertices
    edge: int = 0


@dataclass(frozen=True)
class OperatorDescriptor:
    """One operator of a chain. ``parent`` is the index in the chain of the operator that feeds it (-1: the input)."""

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


@dataclass(frozen=True)
class InputDescriptor:
    """An upstream vertex of a vertex."""

    vertex: int
    input_index: int
    #: of the sources' watermark strategy; None when there is no idleness detection
    idle_timeout_ms: int | None = None
    #: origins known before the first record; () when unknown
    declared_origins: tuple[str, ...] = ()
    #: the same per subtask of the receiver, where not all hear of all
    declared_by_subtask: tuple[tuple[str, ...], ...] = ()
    #: tells apart several edges between the same two vertices
    edge: int = 0
    #: the upstream vertex is a source, its origins are splits
    from_source: bool = True
    #: in each epoch its records come behind those of the other inputs, as long as no watermarks say otherwise
    comes_last: bool = False

    def expected_origins(self, subtask: int) -> tuple[str, ...]:
        """The origins that a subtask will hear of, as far as they are known."""
        return self.declared_by_subtask[subtask] if self.declared_by_subtask else self.declared_origins


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
    #: one per input of a keyed vertex
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    #: what the key was declared to be
    key_type: TypeInformation | None = None
    keyed: bool = False
    #: of a source vertex: what makes its records in the worker
    source: Source | RecordDecoder | None = None
    bounded: bool = False
    #: must be called in every epoch, even without data: processing-time timers or idleness here or behind it
    clocked: bool = False
    #: of a source vertex: the sources that must have ended before it is read
    waits_for: tuple[int, ...] = ()

    @property
    def head(self) -> OperatorDescriptor:
        """The operator that receives the input."""
        return self.operators[0]

    @property
    def stateful(self) -> bool:
        """Whether its tasks keep keyed state, or state of operators."""
        return self.keyed or any(operator.factory.has_operator_state for operator in self.operators)

    def task_name(self, subtask: int) -> str:
        """As Flink shows it: ``Map -> Sink (1/2)``."""
        return f"{self.name} ({subtask + 1}/{self.parallelism})"


@dataclass(frozen=True)
class SinkDescriptor:
    """The end of a way: where committables or records leave the dataflow."""

    id: int
    uid: str
    name: str
    sink: Sink
    parallelism: int
    #: the type of the records, for DataFrame sinks
    input_type: Any = None


@dataclass(frozen=True)
class JobSettings:
    """What every task needs of the configuration."""

    source_batch_size: int = 1_000
    buffer_max_records: int = 20_000
    buffer_max_bytes: int = 16 * 1024 * 1024
    max_records_per_epoch: int = 4_000_000
    max_bytes_per_epoch: int = 256 * 1024 * 1024
    auto_watermark_interval_ms: int = 200
    managed_memory_bytes: int = DEFAULT_BYTES
    #: keyed state of a subtask of about so many bytes lies with the task, more of it in files
    inline_state_bytes: int = 256 * 1024
    #: a folder on the executors' disks for copies of files of state; "": one that Spark gives them, where it is needed
    local_state_root: str = ""
    #: files of state are copied to the executors' disks although the job directory is local
    recover_from_local: bool = False
    #: so many other executors have copies of each subtask's files
    standby_replicas: int = 0
    job_parameters: dict[str, str] = field(default_factory=dict)
    #: name of each cached file -> where it lies on the node of the task
    cached_files: dict[str, str] = field(default_factory=dict)
    #: what the driver has shipped beside the program
    shipped: ShippedFiles = NO_FILES
    configuration: dict[str, str] = field(default_factory=dict)
    #: tasks say what each epoch changes in their state, for incremental checkpoints
    changelog: bool = False
    #: installed packages whose classes stored values may be instances of
    state_packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobDescriptor:
    """A whole job graph."""

    job_id: str
    name: str
    vertices: tuple[VertexDescriptor, ...]
    sinks: tuple[SinkDescriptor, ...]
    settings: JobSettings = JobSettings()
    attempt: int = 0
    #: vertex -> watermark of its subtasks when the savepoint was taken that the job began with
    restored_watermarks: dict[int, int] = field(default_factory=dict)
    #: the job directory began with a savepoint
    restored: bool = False
    #: what stored values may be instances of
    classes: ProgramClasses = field(default=NO_CLASSES, repr=False, compare=False)

    def vertex(self, vertex_id: int) -> VertexDescriptor:
        """The vertex of that number (its place in ``vertices``)."""
        return self.vertices[vertex_id]

    @property
    def levels(self) -> int:
        """Number of levels without the sources' one."""
        return max((vertex.level for vertex in self.vertices), default=0)

    def sink(self, sink_id: int) -> SinkDescriptor:
        """The sink of that number."""
        return self.sinks[sink_id]
