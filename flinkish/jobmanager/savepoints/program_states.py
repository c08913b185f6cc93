"""Finds out which states a program asks for, before it runs: its keyed operators are opened once, by a worker, on empty
state, and closed again.

In a worker and not in the driver: that is where ``open`` runs later, with the modules and the network it needs. What
``open`` does there it does once more than in the job itself. When it fails the states are unknown until the job runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo import Types
from flinkish.common.typeinfo.spark_ddl import spark_type
from flinkish.errors import FlinkishError
from flinkish.runtime.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.pickling import dumps
from flinkish.runtime.state.declared_state import DeclaredState
from flinkish.runtime.state.state_rows import LIST_STATE_KIND, UNION_STATE_KIND
from flinkish.runtime.state.stored_values import ProgramState, ProgramStates
from flinkish.runtime.task import StatefulTask
from flinkish.spark.worker import Deployment, failures_marked

_SCHEMA = "states binary"


@dataclass(frozen=True)
class OpenOperators:
    """Runs in one task of Spark."""

    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: the pickled ProgramStates."""
        for _ in batches:
            pass
        with failures_marked():
            data = dumps(states_of_program(self.deployment.job()))
            yield pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["states"])


def states_of_program(job: JobDescriptor) -> ProgramStates:
    """Open the keyed operators of a job in this process, and ask those with operator state."""
    states: dict[str, dict[str, ProgramState]] = {}
    unknown: dict[str, str] = {}
    key_types = {vertex.head.uid: vertex.key_type for vertex in job.vertices if vertex.key_type is not None}
    for vertex in job.vertices:
        if vertex.keyed or any(descriptor.factory.has_operator_state for descriptor in vertex.operators):
            try:
                states.update(_states_of(job, vertex))
            except Exception as error:
                what = error.what if isinstance(error, FlinkishError) else str(error)
                unknown[vertex.head.uid] = f"open() raised {type(error).__name__}: {what}"
    return ProgramStates(states, unknown, key_types)


def _states_of(job: JobDescriptor, vertex: VertexDescriptor) -> dict[str, dict[str, ProgramState]]:
    """Operator uid -> state name -> state. Functions are opened on keyed streams alone."""
    task = StatefulTask(job, vertex, 0)
    try:
        found: dict[str, dict[str, ProgramState]] = {}
        for operator in reversed(task.chain.operators):
            operator.initialize_state()
        for uid, state in task.chain.states.items():
            for name, (kind, descriptor) in state.known().items():
                of_operator = found.setdefault(uid, {})
                map_key, value = descriptor.entry_types()
                place = Types.LONG() if kind in (LIST_STATE_KIND, UNION_STATE_KIND) else map_key
                of_operator[name] = ProgramState(kind, place, value)
        if task.keyed_state is not None:
            task.chain.head.open()
            of_head = found.setdefault(vertex.head.uid, {})
            for name, (kind, keyed) in task.keyed_state.declared.items():
                types = (None, None) if keyed is None else keyed.entry_types()
                of_head[name] = ProgramState(kind, *types)
        return found
    finally:
        task.dispose()


def find_program_states(spark: Any, deployment: Deployment) -> ProgramStates:
    """What the program asks for, found out by a worker."""
    one = spark.range(1).coalesce(1).mapInArrow(OpenOperators(deployment), _SCHEMA)
    found = pickle.loads(bytes(one.collect()[0]["states"]))
    assert isinstance(found, ProgramStates)
    return found


def with_changes(program: ProgramStates, before: tuple[DeclaredState, ...]) -> ProgramStates:
    """Mark the states whose type is another one than was declared when the savepoint was written."""
    written = {(state.uid, state.name): (state.map_key_type, state.value_type) for state in before}

    def marked(uid: str, name: str, state: ProgramState) -> ProgramState:
        key, value = (None if kind is None else spark_type(kind) for kind in (state.map_key_type, state.value_type))
        return replace(state, type_changed=written.get((uid, name)) != (key, value))

    states = {
        uid: {name: marked(uid, name, state) for name, state in named.items()} for uid, named in program.states.items()
    }
    return replace(program, states=states)
