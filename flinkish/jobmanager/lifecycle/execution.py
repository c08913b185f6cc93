"""The life cycle of an execution, which is one attempt of one subtask.

The table is Flink's (ExecutionState, Execution). FAILED can follow every state that is not final, except CANCELING: an
execution that fails while it is cancelled is CANCELED.
"""

from __future__ import annotations

from enum import Enum

from flinkish.jobmanager.lifecycle.state_machine import Transitions


class ExecutionState(Enum):
    """The states of an execution, as Flink has them."""

    CREATED = "CREATED"
    #: the job's attempt that the execution belongs to has begun
    SCHEDULED = "SCHEDULED"
    #: the query is being started
    DEPLOYING = "DEPLOYING"
    #: the first epoch of the attempt runs: functions are opened, state is restored
    INITIALIZING = "INITIALIZING"
    #: at least one epoch of the attempt is done
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        """Whether no state follows this one."""
        return EXECUTION_TRANSITIONS.is_terminal(self)


_S = ExecutionState

EXECUTION_TRANSITIONS: Transitions[ExecutionState] = Transitions(
    "execution",
    _S.CREATED,
    {
        _S.CREATED: frozenset({_S.SCHEDULED, _S.RECONCILING, _S.CANCELED, _S.FAILED}),
        _S.SCHEDULED: frozenset({_S.DEPLOYING, _S.CANCELED, _S.FAILED}),
        _S.DEPLOYING: frozenset({_S.INITIALIZING, _S.FINISHED, _S.CANCELING, _S.FAILED}),
        _S.INITIALIZING: frozenset({_S.RUNNING, _S.FINISHED, _S.CANCELING, _S.FAILED}),
        _S.RUNNING: frozenset({_S.FINISHED, _S.CANCELING, _S.FAILED}),
        _S.CANCELING: frozenset({_S.CANCELED}),
        _S.RECONCILING: frozenset({_S.INITIALIZING, _S.RUNNING, _S.FINISHED, _S.CANCELED, _S.FAILED}),
    },
)
