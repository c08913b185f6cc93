"""The life cycle of a checkpoint or savepoint: it completes or fails, once. The cause of a failure is its reason."""

from __future__ import annotations

from enum import Enum

from flinkish.jobmanager.lifecycle.state_machine import Transitions


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
