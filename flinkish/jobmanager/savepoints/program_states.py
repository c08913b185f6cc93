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

from flinkish.common.typeinfo.spark_ddl import spark_type
from flinkish.runtime.pickling import dumps
from flinkish.runtime.program_states import states_of_program
from flinkish.runtime.state.declared_state import DeclaredState
from flinkish.runtime.state.stored_values import ProgramState, ProgramStates
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
