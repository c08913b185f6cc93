"""The states that a job has declared so far, kept in its directory: they give types to the columns of its savepoints.

    <job dir>/states.json

Rule: the file only grows while a program runs; a state that is declared again with another type replaces its entry.
"""

from __future__ import annotations

import logging
import threading

from flinkish.errors import FencedError, OperationError
from flinkish.jobdir.directory import STATES_FILE, JobDirectory
from flinkish.jobmanager.observer import JobObserver
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.storage.sealed import typed

_STATES_LOG = logging.getLogger("flinkish.CheckpointCoordinator")


class StateCatalog(JobObserver):
    """Keeps the states that the tasks of a job declare: adds those of each epoch to the file in the job directory."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._states = {(state.uid, state.name): state for state in read_states(directory)}

    def epoch_done(self, report: EpochReport) -> None:
        declared = {(state.uid, state.name): state for task in report.tasks for state in task.declared}
        if declared:
            self.add(tuple(declared.values()))

    def add(self, states: tuple[DeclaredState, ...]) -> None:
        """Add these states to the file. A file that cannot be written is only logged."""
        with self._lock:
            merged = {**self._states, **{(state.uid, state.name): state for state in states}}
            if merged == self._states:
                return
            try:
                write_states(self._directory, tuple(merged.values()))
            except (OSError, OperationError) as error:
                if isinstance(error, FencedError):
                    raise
                # the file only holds types: the job need not fail, and the next epoch that declares a state tries again
                _STATES_LOG.warning("the file %s in %s cannot be written: %s", STATES_FILE, self._directory.path, error)
                return
            self._states = merged


def read_states(directory: JobDirectory) -> tuple[DeclaredState, ...]:
    """The states that the job in a directory has declared so far."""
    content = directory.read(STATES_FILE) or {"states": []}
    return typed(tuple[DeclaredState, ...], content["states"])


def write_states(directory: JobDirectory, states: tuple[DeclaredState, ...]) -> None:
    """Write these as all states of the job, in place of those that the file holds."""
    ordered = sorted(states, key=lambda state: (state.uid, state.name))
    directory.write(STATES_FILE, {"states": [state.to_json() for state in ordered]})
