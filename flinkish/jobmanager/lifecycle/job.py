"""The life cycle of a job.

The table is that of Flink's schedulers (DefaultExecutionGraph, Dispatcher). Two transitions are flinkish's own: FAILING
-> RESTARTING, because here a failure ends the query as a whole, where Flink restarts regions of a job that goes on
RUNNING; and INITIALIZING -> SUSPENDED, for a driver that finds that another one owns the job before the job has begun.
"""

from __future__ import annotations

from flinkish.common.job_status import JobStatus
from flinkish.jobmanager.lifecycle.state_machine import Transitions

_S = JobStatus

JOB_TRANSITIONS: Transitions[JobStatus] = Transitions(
    "job",
    _S.INITIALIZING,
    {
        _S.INITIALIZING: frozenset({_S.CREATED, _S.CANCELLING, _S.FAILING, _S.FAILED, _S.SUSPENDED}),
        _S.CREATED: frozenset({_S.RUNNING, _S.RECONCILING, _S.CANCELLING, _S.FAILING, _S.SUSPENDED}),
        # a driver has taken over a job that another driver had begun
        _S.RECONCILING: frozenset({_S.RUNNING, _S.FINISHED, _S.CANCELLING, _S.FAILING, _S.SUSPENDED}),
        _S.RUNNING: frozenset({_S.FINISHED, _S.RESTARTING, _S.CANCELLING, _S.FAILING, _S.SUSPENDED}),
        _S.FAILING: frozenset({_S.FAILED, _S.RESTARTING, _S.CANCELLING, _S.SUSPENDED}),
        _S.RESTARTING: frozenset({_S.CREATED, _S.RUNNING, _S.CANCELLING, _S.FAILING, _S.SUSPENDED}),
        _S.CANCELLING: frozenset({_S.CANCELED, _S.FAILING, _S.FAILED, _S.SUSPENDED}),
    },
)
