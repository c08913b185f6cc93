"""The program as it was written: one node per operator, one edge per stream (Flink's StreamGraph)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.error_handling import OnError
from flinkish.core.sink import Sink
from flinkish.core.source import Source
from flinkish.errors import DuplicateUidError, ProgramError
from flinkish.runtime.key_groups import default_max_parallelism
from flinkish.runtime.operator import OperatorFactory
from flinkish.runtime.partitioners import Partitioner

#: Flink's upper bound for both.
MAX_PARALLELISM_LIMIT = 32768


class ChainingStrategy(Enum):
    """Whether an operator may share a task with its neighbours."""

    ALWAYS = "always"
    #: only with what comes after it
    HEAD = "head"
    NEVER = "never"


@dataclass(frozen=True)
class Tap:
    """Where a stream comes from: an operator's main or side output, and how it is spread on its way."""

    node: StreamNode
    partitioner: Partitioner | None = None
    tag: str | None = None
    #: of a keyed stream; the partitioner follows from it once the receiver's max parallelism is settled
    key_selector: Callable[[Any], Any] | None = None


@dataclass(eq=False)
class StreamNode:
    """One operator. Attributes that the program may still change (name, uid, parallelism, chaining) are mutable."""

    id: int
    name: str
    factory: OperatorFactory
    output_type: TypeInformation
    taps: list[list[Tap]] = field(default_factory=list)
    parallelism: int | None = None
    max_parallelism: int | None = None
    uid: str | None = None
    #: an identity taken over from another job, 32 hexadecimal digits; goes before the uid
    uid_hash: str | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    key_type: TypeInformation | None = None
    source: Source | None = None
    sink: Sink | None = None
    description: str | None = None
    slot_sharing_group: str | None = None
    #: what becomes of records and timers for which the function raises; None: the job fails
    on_error: OnError | None = None
    #: False for sources such as collections, which Flink does not run in parallel
    parallelism_changeable: bool = True
    #: what Flink runs inside the source operator: nothing can come between the two
    part_of_source: bool = False

    @property
    def keyed(self) -> bool:
        """Whether its state is partitioned by key."""
        return bool(self.key_selectors)

    @property
    def effective_uid(self) -> str:
        """The user's uid (or hash), or one made of the operator's name and place in the program."""
        return self.uid_hash or self.uid or f"{_slug(self.name)}-{self.id}"

    @property
    def has_own_uid(self) -> bool:
        """Whether the program says who this operator is."""
        return bool(self.uid_hash or self.uid)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "operator"


@dataclass(frozen=True)
class StreamEdge:
    """One stream between two operators, with the partitioner that will be used."""

    source: StreamNode
    target: StreamNode
    input_index: int
    partitioner: Partitioner | None
    tag: str | None
    key_selector: Callable[[Any], Any] | None = None


class StreamGraph:
    """All operators of a program, in the order in which they were written.

    ``generate_uids`` False: every operator must have a uid of its own (``pipeline.auto-generate-uids``).
    """

    def __init__(
        self, default_parallelism: int, default_max_parallelism: int | None = None, generate_uids: bool = True
    ) -> None:
        self.default_parallelism = default_parallelism
        self.default_max_parallelism = default_max_parallelism
        self.generate_uids = generate_uids
        #: operators whose max parallelism differs may be in one chain
        self.chain_different_max_parallelism = True
        self.nodes: list[StreamNode] = []
        #: (uid, state name) -> what becomes of each of its values when it is restored from a savepoint
        self.migrations: dict[tuple[str, str], Callable[[Any], Any]] = {}
        #: slot sharing group -> its resources, for plans
        self.slot_sharing_groups: dict[str, str] = {}
        #: dotted name of a class as it was stored -> the class that it is now
        self.class_aliases: dict[str, type] = {}

    def add(self, node: StreamNode) -> StreamNode:
        """Another operator."""
        self.nodes.append(node)
        return node

    def next_id(self) -> int:
        """The number of the next operator; from 1, as in Flink's plans."""
        return len(self.nodes) + 1

    def edges(self) -> list[StreamEdge]:
        """All streams."""
        return [
            StreamEdge(tap.node, node, index, tap.partitioner, tap.tag, tap.key_selector)
            for node in self.nodes
            for index, taps in enumerate(node.taps)
            for tap in taps
        ]

    def parallelism_of(self, node: StreamNode) -> int:
        """What was set on the operator, else the environment's."""
        return node.parallelism or self.default_parallelism

    def max_parallelism_of(self, node: StreamNode) -> int:
        """What was set on the operator, else the environment's, else a small multiple of the parallelism."""
        parallelism = self.parallelism_of(node)
        if node.max_parallelism or self.default_max_parallelism:
            return node.max_parallelism or self.default_max_parallelism or parallelism
        return default_max_parallelism(parallelism)

    def sinks(self) -> list[StreamNode]:
        """Nodes that are sinks."""
        return [node for node in self.nodes if node.sink is not None]

    def check(self) -> None:
        """Everything about the program that can be wrong without running it."""
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
