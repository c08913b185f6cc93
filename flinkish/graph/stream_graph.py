"""The stream graph, which is the program as it was written: one node per operator, one edge per stream (Flink's
StreamGraph); and the origins of watermarks that each subtask of its vertices must wait for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.checkpointed_function import OnError
from flinkish.core.sink import Sink
from flinkish.core.source import Source, SplitSource
from flinkish.errors import DuplicateUidError, ProgramError
from flinkish.runtime.exchange.gate import origin_name
from flinkish.runtime.exchange.keys import default_max_parallelism
from flinkish.runtime.exchange.partitioners import EdgeDescriptor, InputDescriptor, Partitioner, Sender, reachable
from flinkish.runtime.job.deployment import VertexDescriptor
from flinkish.runtime.job.operator import OperatorFactory

#: Flink's upper bound of the max parallelism, and so of the parallelism of keyed operators.
MAX_PARALLELISM_LIMIT = 32768


class ChainingStrategy(Enum):
    """Whether an operator may share a task with its neighbours: always, never, or only with the operators behind it."""

    ALWAYS = "always"
    #: the operator begins a chain: it is never chained to the operator before it
    HEAD = "head"
    NEVER = "never"


@dataclass(frozen=True)
class Tap:
    """The origin of a stream: the main output of an operator, or the side output with the id ``tag``, and the
    partitioner that its records pass; None lets the job graph choose one."""

    node: StreamNode
    partitioner: Partitioner | None = None
    tag: str | None = None
    #: set for a keyed stream; the partitioner follows from it once the max parallelism of the receiver is known
    key_selector: Callable[[Any], Any] | None = None


@dataclass(eq=False)
class StreamNode:
    """One operator of the program. It is mutable, since the program may still change its name, uid, parallelism and
    chaining after it was added."""

    id: int
    name: str
    factory: OperatorFactory
    output_type: TypeInformation
    taps: list[list[Tap]] = field(default_factory=list)
    #: the name that PyFlink gives the operator, if another one is shown: ``get_name()`` and generated uids go by it
    pyflink_name: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    uid: str | None = None
    #: an identity taken over from another job, 32 hexadecimal digits; it wins over the uid
    uid_hash: str | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    key_type: TypeInformation | None = None
    source: Source | None = None
    sink: Sink | None = None
    description: str | None = None
    slot_sharing_group: str | None = None
    #: what happens to records and timers for which the function raises; None: the job fails
    on_error: OnError | None = None
    #: False for operators that must run with one subtask, such as collection sources
    parallelism_changeable: bool = True
    #: id of a side output that the program has asked for -> its type
    side_types: dict[str, TypeInformation] = field(default_factory=dict)
    #: whether Flink runs this operator inside the source operator, so that it is always chained to the source
    part_of_source: bool = False
    #: the line of the program that has added the operator, as a traceback shows it; "" if there is none
    added_at: str = ""

    @property
    def keyed(self) -> bool:
        """Whether the state of the operator is partitioned by key."""
        return bool(self.key_selectors)

    @property
    def effective_uid(self) -> str:
        """The uid hash or uid that the program has set, else a uid generated from the name of the operator and its
        position in the program."""
        return self.uid_hash or self.uid or f"{_slug(self.pyflink_name or self.name)}-{self.id}"

    @property
    def has_own_uid(self) -> bool:
        """Whether the program has set a uid or a uid hash."""
        return bool(self.uid_hash or self.uid)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "operator"


@dataclass(frozen=True, eq=False)
class StreamEdge:
    """One stream between two operators, of which there may be two alike: a stream that is united with itself.
    ``partitioner`` is None if the program chose none; see `flinkish.graph.job_graph.partitioner_of`."""

    source: StreamNode
    target: StreamNode
    input_index: int
    partitioner: Partitioner | None
    tag: str | None
    key_selector: Callable[[Any], Any] | None = None


class StreamGraph:
    """All operators of a program, in the order in which they were written.

    Args:
        default_parallelism: the parallelism of operators that set none.
        default_max_parallelism: the max parallelism of operators that set none; None: derived from the parallelism.
        generate_uids: False requires the program to give each operator a uid (``pipeline.auto-generate-uids``).
    """

    def __init__(
        self, default_parallelism: int, default_max_parallelism: int | None = None, generate_uids: bool = True
    ) -> None:
        self.default_parallelism = default_parallelism
        #: whether nobody has set it: where there is a cluster, it is the number of its slots
        self.follows_slots = False
        self.default_max_parallelism = default_max_parallelism
        self.generate_uids = generate_uids
        #: whether operators whose max parallelism differs may be in one chain
        self.chain_different_max_parallelism = True
        self.nodes: list[StreamNode] = []
        #: (uid, state name) -> the function that each value of that state passes through when it is restored
        self.migrations: dict[tuple[str, str], Callable[[Any], Any]] = {}
        #: slot sharing group -> its resources, as plans show them
        self.slot_sharing_groups: dict[str, str] = {}
        #: dotted name under which a class was stored -> the class of the program that takes its place
        self.class_aliases: dict[str, type] = {}

    def add(self, node: StreamNode) -> StreamNode:
        """Append an operator, and return it."""
        self.nodes.append(node)
        return node

    def next_id(self) -> int:
        """The id of the next operator; ids count from 1, as in Flink's plans."""
        return len(self.nodes) + 1

    def edges(self) -> list[StreamEdge]:
        """All edges, in the order of their target operators."""
        return [
            StreamEdge(tap.node, node, index, tap.partitioner, tap.tag, tap.key_selector)
            for node in self.nodes
            for index, taps in enumerate(node.taps)
            for tap in taps
        ]

    def parallelism_of(self, node: StreamNode) -> int:
        """The parallelism set on the operator, else that of the environment."""
        return node.parallelism or self.default_parallelism

    def max_parallelism_of(self, node: StreamNode) -> int:
        """The max parallelism set on the operator, else that of the environment, else a small multiple of the
        operator's parallelism."""
        parallelism = self.parallelism_of(node)
        if node.max_parallelism or self.default_max_parallelism:
            return node.max_parallelism or self.default_max_parallelism or parallelism
        return default_max_parallelism(parallelism)

    def sinks(self) -> list[StreamNode]:
        """The operators that are sinks, in the order of the program."""
        return [node for node in self.nodes if node.sink is not None]

    def check(self) -> None:
        """Check everything about the program that can be checked without running it.

        Raises:
            ProgramError: there are no operators, a uid is missing or used twice (DuplicateUidError), a parallelism is
                above the max parallelism, or dead letters go to a side output that is not read.
        """
        if not self.nodes:
            raise ProgramError(
                "No operators defined in streaming topology. Cannot execute.",
                where="StreamExecutionEnvironment.execute()",
                expected="a source and what becomes of its records",
                hint="add a source and a sink; execute() empties the program, so that a second one runs nothing",
            )
        self._check_uids()
        for node in self.nodes:
            self._check_has_uid(node)
            self._check_parallelism(node)
            self._check_dead_letters(node)

    def _check_dead_letters(self, node: StreamNode) -> None:
        tag = None if node.on_error is None else node.on_error.tag
        if tag is not None and not any(edge.source is node and edge.tag == tag.tag_id for edge in self.edges()):
            raise ProgramError(
                f"nobody reads the dead letters that go to {tag!r}",
                where=f"operator '{node.name}' (uid {node.effective_uid})",
                expected="a stream of them",
                hint="call get_side_output(tag) on the operator's stream, or on_error(OnError.skip())",
            )

    def _check_has_uid(self, node: StreamNode) -> None:
        if not self.generate_uids and not node.has_own_uid and not node.part_of_source:
            raise ProgramError(
                "Auto generated UIDs have been disabled but no UID or hash has been assigned to an operator",
                where=f"operator '{node.name}' (node {node.id})",
                expected="a uid for each operator",
                hint="call uid(...) on it, or remove pipeline.auto-generate-uids: false",
            )

    def _check_uids(self) -> None:
        seen: dict[str, StreamNode] = {}
        for node in self.nodes:
            other = seen.setdefault(node.effective_uid, node)
            if other is not node:
                raise DuplicateUidError(
                    f"the uid '{node.effective_uid}' is used twice",
                    where=f"operators '{other.name}' (node {other.id}) and '{node.name}' (node {node.id})",
                    expected="a uid of its own for each operator",
                    hint="change one of the uid(...) calls",
                )

    def _check_parallelism(self, node: StreamNode) -> None:
        parallelism, highest = self.parallelism_of(node), self.max_parallelism_of(node)
        if node.keyed and parallelism > highest:
            raise ProgramError(
                f"the parallelism {parallelism} is above the max parallelism {highest}",
                where=f"operator '{node.name}' (uid {node.effective_uid})",
                expected="parallelism <= max parallelism",
                hint="raise set_max_parallelism(...)",
            )


def declare_origins(vertices: tuple[VertexDescriptor, ...]) -> tuple[VertexDescriptor, ...]:
    """The same vertices, with the origins of their inputs filled in: those of watermarks that each subtask must wait
    for, so that an origin that has not sent anything yet holds the watermark back.

    The origins of a source vertex are its splits: the source declares them, and all receivers wait for all of them. The
    origins of any other vertex are its subtasks: all of them, or on a pointwise edge those that send to the receiver.

    A vertex has ended when all of its subtasks have said so, never because all that is known of it has ended. Those of
    a source that reads its splits one after the other are its origins. If it is bounded, each of them comes or ends, so
    all are waited for. A subtask of another source may have nothing to say for long: only the end waits for it.
    """
    return tuple(
        replace(vertex, inputs=tuple(_declared(vertex, described, vertices) for described in vertex.inputs))
        for vertex in vertices
    )


def _declared(
    vertex: VertexDescriptor, described: InputDescriptor, vertices: tuple[VertexDescriptor, ...]
) -> InputDescriptor:
    upstream = vertices[described.vertex]
    if upstream.source is not None:
        if not isinstance(upstream.source, SplitSource):
            # Spark reads it, and it ends as a whole
            return described
        ends = tuple(map(upstream.end_of, range(upstream.parallelism)))
        if upstream.one_stream and upstream.bounded:
            return replace(described, declared_origins=ends)
        return replace(described, awaited_origins=ends)
    edge = _edge_between(upstream, vertex.id, described.edge)
    if not edge.partitioner.pointwise:
        return replace(described, declared_origins=_origins(upstream, range(upstream.parallelism)))
    senders: list[set[int]] = [set() for _ in range(vertex.parallelism)]
    for subtask in range(upstream.parallelism):
        sender = Sender(subtask, upstream.parallelism, edge.target_parallelism, "")
        for target in reachable(edge.partitioner, sender):
            senders[target].add(subtask)
    return replace(described, declared_by_subtask=tuple(_origins(upstream, subtasks) for subtasks in senders))


def _edge_between(upstream: VertexDescriptor, target: int, number: int) -> EdgeDescriptor:
    edges = (edge for operator in upstream.operators for edge in operator.edges)
    return next(edge for edge in edges if edge.target == target and edge.edge == number)


def _origins(upstream: VertexDescriptor, subtasks: Iterable[int]) -> tuple[str, ...]:
    return tuple(origin_name(upstream.id, subtask) for subtask in sorted(subtasks))
