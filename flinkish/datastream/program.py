"""Collects the operators that a program has written so far, and makes stream graphs of them.

Rule upheld here: the submitted stream graph is a copy. A program may go on after ``execute``, build on streams that
were part of an earlier job, or change names and parallelism, without any effect on a running job. The operators of each
stream graph are numbered from 1 in the order in which they were written, so that the same program gives the same
generated uids.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from flinkish import error_display
from flinkish.common.configuration import Configuration
from flinkish.common.options import core, execution
from flinkish.common.typeinfo import TypeInformation
from flinkish.graph.rewrites import apply_runtime_mode
from flinkish.graph.stream_graph import StreamGraph, StreamNode, Tap
from flinkish.runtime.job.operator import OperatorFactory


class Program:
    """The operators of one environment that have not been submitted yet, and what the program registered with them."""

    def __init__(self) -> None:
        self._roots: list[StreamNode] = []
        #: those of the last job that was submitted
        self._submitted: list[StreamNode] = []
        self._count = 0
        #: (uid, state name) -> the function that each value of that state passes through when it is restored
        self.migrations: dict[tuple[str, str], Callable[[Any], Any]] = {}
        #: slot sharing group -> its registered resources, as plans show them
        self.slot_sharing_groups: dict[str, str] = {}
        #: whether the program has asked for its plan, which may be all that it is for
        self.is_explained = False
        #: dotted name under which a class was stored -> the class that takes its place, in all jobs of the environment
        self.class_aliases: dict[str, type] = {}

    def add(
        self,
        name: str,
        factory: OperatorFactory,
        output_type: TypeInformation,
        inputs: Sequence[Sequence[Tap]],
        **settings: Any,
    ) -> StreamNode:
        """Add an operator, and return its node.

        Args:
            name: the name of the operator in plans.
            factory: makes the operator in the tasks.
            output_type: the type of its records.
            inputs: one list of taps for each input.
            settings: further fields of the StreamNode.
        """
        self._count += 1
        taps = [list(taps) for taps in inputs]
        settings.setdefault("added_at", error_display.line_of_program())
        node = StreamNode(self._count, name, factory, output_type, taps, **settings)
        # as in Flink, a source that no operator reads is not part of the job; any other operator is, with its inputs
        if node.source is None:
            self._roots.append(node)
        return node

    def say_if_not_executed(self) -> None:
        """Write a line to stderr if there are operators that were neither executed nor explained. To be called when
        nobody can execute them any more. Nothing is written after an error or a signal, which has been shown, nor in
        tests."""
        from flinkish.jobmanager.signals import stopped_from_outside

        is_told = error_display.was_shown() or stopped_from_outside()
        if self.empty or self.is_explained or is_told or "pytest" in sys.modules:
            return
        print(
            f"flinkish: {self.size} operators, the last of them '{self._roots[-1].name}', were "
            "added to an environment and never executed; call env.execute() at the end of the program",
            file=sys.stderr,
        )

    @property
    def size(self) -> int:
        """The number of operators."""
        return len(self.nodes())

    def nodes(self) -> list[StreamNode]:
        """All operators."""
        return _with_upstream(self._roots)

    @property
    def empty(self) -> bool:
        """Whether there are no operators."""
        return not self._roots

    def part(self, roots: Sequence[StreamNode]) -> Program:
        """A program of these operators and of those before them, which are then no roots of this program any more: what
        else reads them keeps them."""
        taken = {node.id for node in _with_upstream(roots)}
        self._roots = [node for node in self._roots if node.id not in taken]
        return self.with_roots(roots)

    def with_roots(self, roots: Sequence[StreamNode]) -> Program:
        """A program of these operators and of those before them."""
        other = Program()
        other._roots, other._count, other.migrations = list(roots), self._count, dict(self.migrations)
        other.slot_sharing_groups, other.class_aliases = self.slot_sharing_groups, self.class_aliases
        return other

    def clear(self, *, submitted: bool = False) -> None:
        """Forget the operators and state migrations, to begin the next job. The next job may still use the streams made
        so far. ``submitted``: the operators are those of a job that begins."""
        self._submitted, self._roots = (self._roots if submitted else []), []
        self.migrations.clear()

    def stream_graph(
        self, configuration: Configuration, default_parallelism: int, *, or_submitted: bool = False
    ) -> StreamGraph:
        """A copy of the operators, ready to be submitted. ``or_submitted``: if there are none, a copy of those of the
        last job that was submitted.

        Raises:
            ProgramError: a source is unbounded in BATCH mode. Other faults are found by ``StreamGraph.check`` only.
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
        roots = self._roots or (self._submitted if or_submitted else [])
        for node in sorted(_with_upstream(roots), key=lambda node: node.id):
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
    """The slot sharing group of an operator: its own, else that of its inputs if they agree, else ``default`` (as in
    Flink)."""
    if node.slot_sharing_group is not None:
        return node.slot_sharing_group
    groups = {tap.node.slot_sharing_group for taps in node.taps for tap in taps}
    return groups.pop() or "default" if len(groups) == 1 else "default"
