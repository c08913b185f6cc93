"""Translates the stream graph into the job graph: chains of operators become vertices, and vertices get levels (Flink's
StreamingJobGraphGenerator).

The level of a vertex is 0 for sources, else 1 + the highest level among its inputs; all vertices of a level run in one
Spark stage. Sinks are the ends of chains; their committers have numbers of their own.

Rule: a generated uid depends on the operator's place in the program, so after a change of the program it may be the uid
of another operator. State is never restored to an operator by such a uid: there is a warning when the job is submitted,
and an error when it is restored from a savepoint.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flinkish.common.no_effect import warn_without_effect
from flinkish.core.sink import DataFrameSink
from flinkish.core.source import DataFrameSource, RecordDecoder, Source, SplitSource
from flinkish.errors import ProgramError, escaped, shortened
from flinkish.graph.rewrites import consumes_broadcast_first, waiting_sources
from flinkish.graph.stream_graph import ChainingStrategy, StreamEdge, StreamGraph, StreamNode, declare_origins
from flinkish.runtime.exchange.gate import origin_name
from flinkish.runtime.exchange.keys import SentKeys, can_be_repeated
from flinkish.runtime.exchange.partitioners import (
    EdgeDescriptor,
    ForwardPartitioner,
    InputDescriptor,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
)
from flinkish.runtime.job.deployment import (
    JobDescriptor,
    JobSettings,
    OperatorDescriptor,
    SinkDescriptor,
    VertexDescriptor,
    slots_of_levels,
)
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.guarded_factory import GuardedFactory
from flinkish.runtime.operators.interval_join import IntervalJoinFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.stored.classes import ProgramClasses, ShippedFiles

#: Of longer descriptions, such as those of queries of many columns, the middle is left out.
_DESCRIPTION_CHARS = 1_000
#: In a job of more than `_MANY_SUBTASKS` subtasks a receiver gets only a few records of each batch, and a watermark
#: costs it as much as some records. So watermarks are emitted only once each receiver can have received
#: `_RECORDS_OF_RECEIVER` records since the last one.
_MANY_SUBTASKS, _RECORDS_OF_RECEIVER = 64, 16


def partitioner_of(edge: StreamEdge, graph: StreamGraph) -> Partitioner:
    """The partitioner of an edge: by key on a keyed stream, else the one that the program chose, else forward between
    operators of the same parallelism, else rebalance.

    Raises:
        ProgramError: the program chose forward between operators of different parallelisms.
    """
    if edge.key_selector is not None:
        return KeyGroupPartitioner(edge.key_selector, graph.max_parallelism_of(edge.target), edge.target.keyed)
    same = graph.parallelism_of(edge.source) == graph.parallelism_of(edge.target)
    if edge.partitioner is None:
        return ForwardPartitioner() if same else RebalancePartitioner()
    if isinstance(edge.partitioner, ForwardPartitioner) and not same:
        raise ProgramError(
            "forward partitioning does not allow change of parallelism",
            where=f"from '{edge.source.name}' ({graph.parallelism_of(edge.source)}) "
            f"to '{edge.target.name}' ({graph.parallelism_of(edge.target)})",
            expected="operators of one parallelism",
            hint="use rebalance() or rescale(), or set the same parallelism",
        )
    return edge.partitioner


def _same_max_parallelism(graph: StreamGraph, source: StreamNode, target: StreamNode) -> bool:
    return graph.max_parallelism_of(source) == graph.max_parallelism_of(target)


class JobGraphGenerator:
    """Translates the stream graph of one program into its job graph.

    Args:
        graph: the program; it is checked first, and ``ProgramError`` raised if it is wrong.
        settings: the settings that travel to the tasks.
        chaining: whether operators are chained at all.
    """

    def __init__(self, graph: StreamGraph, settings: JobSettings, chaining: bool = True) -> None:
        graph.check()
        self._graph = graph
        self._settings = settings
        self._chaining = chaining
        #: the classes that stored values may be instances of; None: not looked for yet
        self._classes: ProgramClasses | None = None
        self._analyse()

    def _analyse(self) -> None:
        """Find out what of the graph depends on the parallelism of its operators."""
        graph = self._graph
        self._edges = graph.edges()
        self._in: dict[int, list[StreamEdge]] = defaultdict(list)
        self._out: dict[int, list[StreamEdge]] = defaultdict(list)
        for edge in self._edges:
            self._in[edge.target.id].append(edge)
            self._out[edge.source.id].append(edge)
        self._sensitive = self._upstream_of(lambda node: node.factory.watermark_sensitive)
        self._before_merges = self._upstream_of(lambda node: node.factory.merges_windows)
        # a dead letter has the timestamp of its record
        self._timed = self._upstream_of(lambda node: node.factory.reads_timestamps or node.on_error is not None)
        self._regular = self._regular_nodes()
        self._clocked = self._regular | self._upstream_of(lambda node: node.factory.has_timers)
        self._waits = waiting_sources(graph.nodes, self._in)
        self._chains = self._make_chains()
        self._heads = {node.id: chain[0] for chain in self._chains for node in chain}
        self._levels = self._make_levels()
        self._chains.sort(key=lambda chain: (self._levels[chain[0].id], chain[0].id))
        self._vertex_ids = {chain[0].id: index for index, chain in enumerate(self._chains)}
        self._sink_ids = {node.id: index for index, node in enumerate(graph.sinks())}

    def generate(self, job_id: str, name: str) -> JobDescriptor:
        """The job graph, for a job with this id and name."""
        if self._classes is None:
            settings = self._settings
            self._classes = ProgramClasses.of_this_process(
                self._graph.class_aliases, settings.state_packages, settings.shipped.here
            )
        return JobDescriptor(
            job_id,
            name,
            declare_origins(tuple(self._vertex(chain) for chain in self._chains)),
            tuple(self._sink(node) for node in self._graph.sinks()),
            self._settings,
            classes=self._classes,
        )

    @property
    def graph(self) -> StreamGraph:
        """The program."""
        return self._graph

    @property
    def required_slots(self) -> int:
        """The number of task slots that the widest level of the job needs (`slots_of_levels`)."""
        graph, heads = self._graph, [chain[0] for chain in self._chains]
        widths = ((self._levels[head.id], graph.parallelism_of(head)) for head in heads)
        return slots_of_levels(widths, self._settings.spark_partitions)

    def on_slots(self, slots: int) -> None:
        """The cluster has so many slots: they are the parallelism of operators for which nobody has set one.

        Raises:
            ProgramError: the parallelism of an operator is above its max parallelism.
        """
        if self._graph.follows_slots and slots != self._graph.default_parallelism:
            self._graph.default_parallelism = slots
            self._graph.check()
            self._analyse()

    def with_managed_memory(self, size_bytes: int) -> None:
        """Set how much state a worker keeps in memory, for the job graphs generated from now on."""
        self._settings = replace(self._settings, managed_memory_bytes=size_bytes)

    def with_shipped_files(self, shipped: ShippedFiles) -> None:
        """Set the files that are shipped to the workers with the program, for the job graphs generated from now on."""
        self._settings, self._classes = replace(self._settings, shipped=shipped), None

    def without_changelog(self) -> None:
        """Have tasks not write down what each epoch changes in their state, for the job graphs generated from now
        on."""
        self._settings = replace(self._settings, changelog=False)

    def sources(self) -> dict[int, Source]:
        """The sources of the program by vertex id. A worker may get only the decoder of such a source."""
        return {self._vertex_ids[chain[0].id]: chain[0].source for chain in self._chains if chain[0].source is not None}

    def uses_data_frames(self) -> bool:
        """Whether Spark itself reads a source of the program, or a sink takes Spark's DataFrames."""
        read = any(isinstance(source, DataFrameSource) for source in self.sources().values())
        return read or any(isinstance(node.sink, DataFrameSink) for node in self._graph.sinks())

    def migrations(self) -> dict[tuple[str, str], Callable[[Any], Any]]:
        """The state migrations of the program: (uid, state name) -> the function that each value of that state passes
        through when it is restored from a savepoint."""
        return dict(self._graph.migrations)

    # ------------------------------------------------------------------ analysis

    def _upstream_of(self, matters: Callable[[StreamNode], bool]) -> set[int]:
        """The ids of the nodes that meet the condition ``matters``, and of all nodes upstream of them."""
        found: set[int] = set()
        stack = list(filter(matters, self._graph.nodes))
        while stack:
            node = stack.pop()
            if node.id not in found:
                found.add(node.id)
                stack.extend(edge.source for edge in self._in[node.id])
        return found

    def _regular_nodes(self) -> set[int]:
        """The ids of the nodes for which epochs without data are planned at regular intervals: those upstream of
        processing-time windows, or all nodes if idleness is detected anywhere, since it matters to everything
        downstream of the source."""
        if any(_detects_idleness(node) for node in self._graph.nodes):
            return {node.id for node in self._graph.nodes}
        return self._upstream_of(lambda node: node.factory.uses_processing_time)

    def _chainable(self, edge: StreamEdge, head: StreamNode) -> bool:
        """Whether the target of an edge joins the chain of its source, which begins with ``head``. The task of a chain
        that begins with a source keeps no state."""
        graph, source, target = self._graph, edge.source, edge.target
        if target.part_of_source:
            return True
        return (
            self._chaining
            and len(self._in[target.id]) == 1
            and target.chaining is ChainingStrategy.ALWAYS
            and not (_remembers(target) and head.source is not None)
            and source.chaining is not ChainingStrategy.NEVER
            and isinstance(partitioner_of(edge, graph), ForwardPartitioner)
            and (graph.chain_different_max_parallelism or _same_max_parallelism(graph, source, target))
            and (source.slot_sharing_group or "default") == (target.slot_sharing_group or "default")
        )

    def _make_chains(self) -> list[list[StreamNode]]:
        #: node id -> the chain that the node belongs to
        chains: dict[int, list[StreamNode]] = {}
        for node in self._graph.nodes:
            edges = self._in[node.id]
            before = chains[edges[0].source.id] if len(edges) == 1 else []
            if before and self._chainable(edges[0], before[0]):
                before.append(node)
                chains[node.id] = before
            else:
                chains[node.id] = [node]
        return [chain for node_id, chain in chains.items() if chain[0].id == node_id]

    def _make_levels(self) -> dict[int, int]:
        levels: dict[int, int] = {}
        for node in self._graph.nodes:
            head = self._heads[node.id]
            if head is node:
                sources = [self._heads[edge.source.id] for edge in self._in[node.id]]
                levels[node.id] = 1 + max((levels[source.id] for source in sources), default=-1)
        return levels

    # ------------------------------------------------------------------ descriptions

    def _vertex(self, chain: list[StreamNode]) -> VertexDescriptor:
        head, graph = chain[0], self._graph
        places = {node.id: index for index, node in enumerate(chain)}
        return VertexDescriptor(
            id=self._vertex_ids[head.id],
            name=" -> ".join(escaped(node.name) for node in chain),
            level=self._levels[head.id],
            operators=tuple(self._operator(node, places) for node in chain),
            parallelism=graph.parallelism_of(head),
            max_parallelism=graph.max_parallelism_of(head),
            inputs=self._inputs(head),
            key_selectors=tuple(
                selector if can_be_repeated(selector) else SentKeys() for selector in head.key_selectors
            ),
            key_type=head.key_type,
            keyed=head.keyed,
            source=_in_worker(head.source),
            bounded=head.source is not None and head.source.bounded,
            clocked=any(node.id in self._clocked for node in chain),
            regular=any(node.id in self._regular for node in chain),
            with_timestamps=head.id in self._timed,
            waits_for=tuple(sorted(self._vertex_ids[source] for source in self._waits.get(head.id, ()))),
        )

    def _operator(self, node: StreamNode, places: dict[int, int]) -> OperatorDescriptor:
        parent, tag = -1, None
        for edge in self._in[node.id]:
            if edge.source.id in places and places[node.id] > 0:
                parent, tag = places[edge.source.id], edge.tag
        outside = [edge for edge in self._out[node.id] if edge.target.id not in places or self._is_head(edge.target)]
        return OperatorDescriptor(
            uid=node.effective_uid,
            name=escaped(node.name),
            factory=self._factory(node),
            parent=parent,
            parent_tag=tag,
            edges=tuple(self._edge(edge) for edge in outside),
            sink=self._sink_ids.get(node.id),
            uid_given=node.has_own_uid,
            description=shortened(node.description or "", _DESCRIPTION_CHARS),
            added_at=node.added_at,
        )

    def _is_head(self, node: StreamNode) -> bool:
        return self._heads[node.id] is node

    def _factory(self, node: StreamNode) -> OperatorFactory:
        """The factory that travels to the tasks. Watermark generators emit watermarks at fine intervals only if user
        code downstream of them can see single watermarks."""
        factory = node.factory
        if node.on_error is not None:
            return GuardedFactory(factory, node.on_error)
        if isinstance(factory, TimestampsAndWatermarksFactory):
            interval_ms = self._settings.auto_watermark_interval_ms or None if node.id in self._sensitive else None
            if factory.alignment is not None and not isinstance(self._heads[node.id].source, SplitSource):
                warn_without_effect(
                    "with_watermark_alignment",
                    f"'{node.name}' is not chained to a source whose splits flinkish reads (give the strategy to"
                    " from_source; Delta and from_spark are read by Spark)",
                )
            widest = max(map(self._graph.parallelism_of, self._graph.nodes))
            seldom = widest > _MANY_SUBTASKS and node.id not in self._sensitive
            return replace(
                factory,
                interval_ms=interval_ms,
                before_next=node.id in self._before_merges,
                every_records=_RECORDS_OF_RECEIVER * widest if seldom else 0,
            )
        return factory

    def _edge(self, edge: StreamEdge) -> EdgeDescriptor:
        target, graph = edge.target, self._graph
        clocked = any(node.id in self._clocked for node in self._chain_of(target))
        return EdgeDescriptor(
            target=self._vertex_ids[target.id],
            input_index=edge.input_index,
            partitioner=partitioner_of(edge, graph),
            target_parallelism=graph.parallelism_of(target),
            tag=edge.tag,
            always_call=clocked,
            edge=self._edge_number(edge),
        )

    def _edge_number(self, edge: StreamEdge) -> int:
        """The number of an edge among the edges between the same two vertices."""
        head = self._heads[edge.source.id]
        return [other for other in self._in[edge.target.id] if self._heads[other.source.id] is head].index(edge)

    def _chain_of(self, head: StreamNode) -> list[StreamNode]:
        return next(chain for chain in self._chains if chain[0] is head)

    def _inputs(self, head: StreamNode) -> tuple[InputDescriptor, ...]:
        inputs = []
        for position, edge in enumerate(self._in[head.id]):
            source = self._heads[edge.source.id].source
            vertex = self._vertex_ids[self._heads[edge.source.id].id]
            inputs.append(
                InputDescriptor(
                    vertex,
                    edge.input_index,
                    self._idle_timeout(edge.source),
                    tuple(origin_name(vertex, split) for split in _splits(source)),
                    edge=self._edge_number(edge),
                    from_source=source is not None,
                    comes_last=consumes_broadcast_first(head) and edge.input_index == 0,
                    watermark_index=position if _joins_two_streams(head.factory) else None,
                )
            )
        return tuple(inputs)

    def _idle_timeout(self, node: StreamNode) -> int | None:
        """The idle timeout in ms of the nearest watermark strategy at or before the node in its chain; None if there is
        no such strategy, or it detects no idleness."""
        while True:
            if isinstance(node.factory, TimestampsAndWatermarksFactory):
                return node.factory.idle_timeout_ms
            if self._is_head(node):
                return None
            node = self._in[node.id][0].source

    def _sink(self, node: StreamNode) -> SinkDescriptor:
        assert node.sink is not None
        head = self._heads[node.id]
        return SinkDescriptor(
            self._sink_ids[node.id],
            node.effective_uid,
            escaped(node.name),
            node.sink,
            self._graph.parallelism_of(head),
            self._in[node.id][0].source.output_type,
            node.has_own_uid,
        )


def _remembers(node: StreamNode) -> bool:
    """Whether the operator keeps anything from epoch to epoch that belongs to no key: operator state, or the error
    budget of ``on_error``."""
    return node.factory.has_operator_state or node.on_error is not None


def _joins_two_streams(factory: OperatorFactory) -> bool:
    """Whether an operator with one input joins the two streams that are united in it: their watermarks are combined as
    those of two inputs are, which Flink's operator has."""
    inner = factory.factory if isinstance(factory, GuardedFactory) else factory
    return isinstance(inner, IntervalJoinFactory)


def _splits(source: Source | None) -> Sequence[str]:
    """The names of the splits that a source declares before its first record, if it reads its splits side by side."""
    return source.declared_splits() if isinstance(source, SplitSource) and source.side_by_side else ()


def _in_worker(source: Source | None) -> Source | RecordDecoder | None:
    """The part of a source that travels to the workers."""
    return source.decoder() if isinstance(source, DataFrameSource) else source


def _detects_idleness(node: StreamNode) -> bool:
    return isinstance(node.factory, TimestampsAndWatermarksFactory) and node.factory.idle_timeout_ms is not None


_LOG = logging.getLogger("flinkish.JobManager")


def stateful_without_uid(job: JobDescriptor) -> tuple[str, ...]:
    """The operators that have state, or a position in their input, and no uid from the program: ``'name' (uid)``."""
    found = []
    for vertex in job.vertices:
        for place, descriptor in enumerate(vertex.operators):
            stateful = place == 0 and (vertex.keyed or vertex.level == 0) or descriptor.factory.has_operator_state
            if stateful and not descriptor.uid_given:
                found.append(f"'{descriptor.name}' ({descriptor.uid})")
    return tuple(found)


def warn_of_missing_uids(job: JobDescriptor) -> None:
    """Log a warning that names the stateful operators without a uid; to be called when a job is submitted."""
    names = stateful_without_uid(job)
    if names:
        _LOG.warning(
            "job '%s': stateful operators without a uid: %s; the job cannot be restored from its savepoints "
            "until each of them has one: call uid(...) on them",
            job.name,
            ", ".join(names),
        )
