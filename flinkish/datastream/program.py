"""The operators that a program has written so far, and the stream graph that is made of them.

Rule upheld here: what is submitted is a copy. A program may go on after ``execute``, build on streams that were part
of an earlier job, or change names and parallelism, and no running job sees it. In each stream graph operators are
numbered from 1 in the order in which they were written, so that the same program gives the same generated uids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.options import core, execution
from flinkish.common.typeinfo import TypeInformation
from flinkish.graph.batch_mode import apply_runtime_mode
from flinkish.graph.stream_graph import StreamGraph, StreamNode, Tap
from flinkish.runtime.operator import OperatorFactory


class Program:
    """One environment's operators."""

    def __init__(self) -> None:
        self._roots: list[StreamNode] = []
        self._count = 0
        #: (uid, state name) -> function
        self.migrations: dict[tuple[str, str], Callable[[Any], Any]] = {}
        #: slot sharing group -> the resources that it was registered with, as plans show them
        self.slot_sharing_groups: dict[str, str] = {}
        #: dotted name of a class as it was stored -> the class that it is now; of all jobs of the environment
        self.class_aliases: dict[str, type] = {}

    def add(
        self,
        name: str,
        factory: OperatorFactory,
        output_type: TypeInformation,
        inputs: Sequence[Sequence[Tap]],
        **settings: Any,
    ) -> StreamNode:
        """Another operator; ``inputs`` has one list of taps per input, ``settings`` are fields of StreamNode."""
        self._count += 1
        taps = [list(taps) for taps in inputs]
        node = StreamNode(self._count, name, factory, output_type, taps, **settings)
        # a source that nobody reads is no part of the job, as in Flink; everything else is, with all that it reads
        if node.source is None:
            self._roots.append(node)
        return node

    def clear(self) -> None:
        """Begin the next job. Streams made so far can still be built upon."""
        self._roots.clear()
        self.migrations.clear()

    def stream_graph(self, configuration: Configuration, default_parallelism: int) -> StreamGraph:
        """A copy of the operators, ready to be submitted.

        Raises:
            ProgramError: unbounded sources in BATCH mode. What ``StreamGraph.check`` finds is not looked for here.
        """
        graph = StreamGraph(
            default_parallelism,
            configuration.get(core.MAX_PARALLELISM),
            generate_uids=configuration.get(core.AUTO_GENERATE_UIDS),
        )
        graph.chain_different_max_parallelism = configuration.get(core.CHAIN_OPERATORS_WITH_DIFFERENT_MAX_PARALLELISM)
        graph.slot_sharing_groups.update(self.slot_sharing_groups)
        graph.migrations.update(self.migrations)
        graph.class_aliases.update(self.class_aliases)
        copies: dict[int, StreamNode] = {}
        for node in sorted(_with_upstream(self._roots), key=lambda node: node.id):
            taps = [[replace(tap, node=copies[tap.node.id]) for tap in taps] for taps in node.taps]
            copy = replace(node, id=graph.next_id(), taps=taps)
            copy.slot_sharing_group = _slot_sharing_group(copy)
            copies[node.id] = graph.add(copy)
        apply_runtime_mode(graph, configuration.get(execution.RUNTIME_MODE))
        return graph


def _with_upstream(roots: Iterable[StreamNode]) -> list[StreamNode]:
    found: dict[int, StreamNode] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.id not in found:
            found[node.id] = node
            stack.extend(tap.node for taps in node.taps for tap in taps)
    return list(found.values())


def _slot_sharing_group(node: StreamNode) -> str:
    """An operator without a group takes that of its inputs, if they agree (Flink)."""
    if node.slot_sharing_group is not None:
        return node.slot_sharing_group
    groups = {tap.node.slot_sharing_group for taps in node.taps for tap in taps}
    return groups.pop() or "default" if len(groups) == 1 else "default"
