"""``flinkish.state``: reads checkpoints and savepoints as DataFrames, makes savepoints from DataFrames, and reports
what a program would take over of a savepoint. Not in PyFlink (in Java it is the State Processor API)."""

from __future__ import annotations

from flinkish.checkpoint.compatibility import CompatibilityReport, StateCompatibility, StateStatus
from flinkish.state.contents import SavepointContent, StateContent, describe_savepoint
from flinkish.state.reading import StateDescription, compatibility, list_states, read_state
from flinkish.state.writing import write_savepoint

__all__ = [
    "CompatibilityReport",
    "SavepointContent",
    "StateCompatibility",
    "StateContent",
    "StateDescription",
    "StateStatus",
    "compatibility",
    "describe_savepoint",
    "list_states",
    "read_state",
    "write_savepoint",
]
