"""Finds out which states a program declares: its keyed operators are opened once on empty state and disposed of."""

from __future__ import annotations

from flinkish.common.typeinfo import Types
from flinkish.errors import FlinkishError, failures_of_user_code, message_of
from flinkish.runtime.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates
from flinkish.runtime.state.state_rows import LIST_STATE_KIND, UNION_STATE_KIND
from flinkish.runtime.stateful_task import StatefulTask


def states_of_program(job: JobDescriptor) -> ProgramStates:
    """Collect the states that the operators of a job declare, by running their initialization in this process. Where it
    fails, the reason is recorded instead."""
    states: dict[str, dict[str, ProgramState]] = {}
    unknown: dict[str, str] = {}
    key_types = {vertex.head.uid: vertex.key_type for vertex in job.vertices if vertex.key_type is not None}
    for vertex in job.vertices:
        if vertex.stateful:
            try:
                states.update(_states_of(job, vertex))
            except failures_of_user_code() as error:
                what = error.what if isinstance(error, FlinkishError) else message_of(error)
                unknown[vertex.head.uid] = f"open() raised {type(error).__name__}: {what}"
    return ProgramStates(states, unknown, key_types)


def _states_of(job: JobDescriptor, vertex: VertexDescriptor) -> dict[str, dict[str, ProgramState]]:
    """The states of a vertex, as operator uid -> state name -> state. Only the head operator of a keyed vertex is
    opened."""
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
