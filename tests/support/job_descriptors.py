"""Job graphs that are only looked at: vertices and edges, without functions."""

from __future__ import annotations

from collections.abc import Mapping

from flinkish.runtime.exchange.partitioners import InputDescriptor
from flinkish.runtime.job.deployment import JobDescriptor, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.operators.functions import MapFactory
from flinkish.runtime.operators.source_and_sink import SourceOperatorFactory
from tests.support.lettered_source import LetteredSource


def job_of_levels(inputs: Mapping[int, tuple[int, ...]]) -> JobDescriptor:
    """A job with these vertices and the vertices that feed them; those without inputs are sources. Vertex n has the uid
    ``uid-n``."""
    levels: dict[int, int] = {}
    vertices = []
    for vertex, feeding in sorted(inputs.items()):
        levels[vertex] = 1 + max(map(levels.__getitem__, feeding)) if feeding else 0
        head = OperatorDescriptor(
            f"uid-{vertex}", f"vertex {vertex}", MapFactory(str) if feeding else SourceOperatorFactory()
        )
        edges = tuple(InputDescriptor(one, 0) for one in feeding)
        source = None if feeding else LetteredSource({"a": 1})
        vertices.append(VertexDescriptor(vertex, head.name, levels[vertex], (head,), 2, 4, edges, source=source))
    return JobDescriptor("00" * 16, "job", tuple(vertices), ())
