"""Finds out which states a program declares, before it runs: a worker opens its keyed operators once, on empty state,
and closes them again.

This happens in a worker and not in the driver because that is where ``open`` runs later, with the modules and the
network that it needs. So ``open`` runs once more than the job itself calls it. If it fails, the operator's states are
unknown until the job runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo.arrow import spark_type
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.runtime.stored.pickling import to_worker
from flinkish.runtime.task.tasks import states_of_program
from flinkish.spark.failures import translate
from flinkish.spark.worker import Deployment, failures_marked

_SCHEMA = "states binary"


@dataclass(frozen=True)
class OpenOperators:
    """The function of the one Spark task that finds out the states of the program."""

    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row: the pickled ProgramStates."""
        for _ in batches:
            pass
        with failures_marked(self.deployment.secret):
            data = to_worker(states_of_program(self.deployment.job()))
            yield pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["states"])


def find_program_states(spark: Any, deployment: Deployment, where: str) -> ProgramStates:
    """The states that the program declares, as a worker finds them out. ``where``: names the job in errors."""
    one = spark.range(1).coalesce(1).mapInArrow(OpenOperators(deployment), _SCHEMA)
    try:
        rows = one.collect()
    except Exception as error:
        raise translate(error, where, deployment.secret) from error
    found = pickle.loads(bytes(rows[0]["states"]))
    assert isinstance(found, ProgramStates)
    return found


def with_changes(program: ProgramStates, before: tuple[DeclaredState, ...]) -> ProgramStates:
    """Mark the states whose type differs from the one that was declared when the savepoint was written (``before``)."""
    written = {(state.uid, state.name): (state.map_key_type, state.value_type) for state in before}

    def marked(uid: str, name: str, state: ProgramState) -> ProgramState:
        key, value = (None if kind is None else spark_type(kind) for kind in (state.map_key_type, state.value_type))
        return replace(state, type_changed=written.get((uid, name)) != (key, value))

    states = {
        uid: {name: marked(uid, name, state) for name, state in named.items()} for uid, named in program.states.items()
    }
    return replace(program, states=states)
