"""The life cycles of a job, an execution and a checkpoint.

*Job*: the table is that of Flink's schedulers (DefaultExecutionGraph, Dispatcher). Two transitions are flinkish's own:
FAILING -> RESTARTING, because here a failure ends the query as a whole, where Flink restarts regions of a job that goes
on RUNNING; and INITIALIZING -> SUSPENDED, for a driver that finds that another one owns the job before the job has
begun.

*Execution*, one attempt of one subtask: the table is Flink's (ExecutionState, Execution). FAILED can follow every state
that is not final, except CANCELING: an execution that fails while it is cancelled is CANCELED.

*Checkpoint or savepoint*: it completes or fails, once. The cause of a failure is its reason.
"""

from __future__ import annotations

from enum import Enum

from flinkish.common.job_status import JobStatus
from flinkish.jobmanager.lifecycle.state_machine import Transitions

_J = JobStatus

JOB_TRANSITIONS: Transitions[JobStatus] = Transitions(
    "job",
    _J.INITIALIZING,
    {
        _J.INITIALIZING: frozenset({_J.CREATED, _J.CANCELLING, _J.FAILING, _J.FAILED, _J.SUSPENDED}),
        _J.CREATED: frozenset({_J.RUNNING, _J.RECONCILING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        # a driver has taken over a job that another driver had begun
        _J.RECONCILING: frozenset({_J.RUNNING, _J.FINISHED, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        _J.RUNNING: frozenset({_J.FINISHED, _J.RESTARTING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        _J.FAILING: frozenset({_J.FAILED, _J.RESTARTING, _J.CANCELLING, _J.SUSPENDED}),
        _J.RESTARTING: frozenset({_J.CREATED, _J.RUNNING, _J.CANCELLING, _J.FAILING, _J.SUSPENDED}),
        _J.CANCELLING: frozenset({_J.CANCELED, _J.FAILING, _J.FAILED, _J.SUSPENDED}),
    },
)


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


_E = ExecutionState

EXECUTION_TRANSITIONS: Transitions[ExecutionState] = Transitions(
    "execution",
    _E.CREATED,
    {
        _E.CREATED: frozenset({_E.SCHEDULED, _E.RECONCILING, _E.CANCELED, _E.FAILED}),
        _E.SCHEDULED: frozenset({_E.DEPLOYING, _E.CANCELED, _E.FAILED}),
        _E.DEPLOYING: frozenset({_E.INITIALIZING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.INITIALIZING: frozenset({_E.RUNNING, _E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.RUNNING: frozenset({_E.FINISHED, _E.CANCELING, _E.FAILED}),
        _E.CANCELING: frozenset({_E.CANCELED}),
        _E.RECONCILING: frozenset({_E.INITIALIZING, _E.RUNNING, _E.FINISHED, _E.CANCELED, _E.FAILED}),
    },
)


class CheckpointState(Enum):
    """The states of a checkpoint: Flink's CheckpointStatsStatus, with PENDING for IN_PROGRESS."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


CHECKPOINT_TRANSITIONS: Transitions[CheckpointState] = Transitions(
    "checkpoint",
    CheckpointState.PENDING,
    {CheckpointState.PENDING: frozenset({CheckpointState.COMPLETED, CheckpointState.FAILED})},
)
