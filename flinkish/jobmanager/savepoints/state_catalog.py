"""The states that a job has declared so far, kept in its directory: what gives the columns of its savepoints types.

    <job dir>/states.json

Rule: the file only grows while a program runs; a state that is declared again, otherwise typed, replaces the entry.
"""

from __future__ import annotations

import logging
import threading

from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.job_run import JobObserver
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.state.declared_state import DeclaredState

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")
_FILE = "states.json"


class StateCatalog(JobObserver):
    """Listens to the tasks of a job."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._states = {(state.uid, state.name): state for state in read_states(directory)}

    def epoch_done(self, report: EpochReport) -> None:
        declared = {(state.uid, state.name): state for task in report.tasks for state in task.declared}
        if declared:
            self.add(tuple(declared.values()))

    def add(self, states: tuple[DeclaredState, ...]) -> None:
        """Remember these, too."""
        with self._lock:
            merged = {**self._states, **{(state.uid, state.name): state for state in states}}
            if merged == self._states:
                return
            try:
                write_states(self._directory, tuple(merged.values()))
            except OSError as error:
                # types only: the job need not fail for them, and the next epoch with a new state tries again
                _LOG.warning("the file %s in %s cannot be written: %s", _FILE, self._directory.path, error)
                return
            self._states = merged


def read_states(directory: JobDirectory) -> tuple[DeclaredState, ...]:
    """What is known of the states of the job in a directory."""
    content = directory.read(_FILE) or {"states": []}
    return tuple(DeclaredState.from_json(state) for state in content["states"])


def write_states(directory: JobDirectory, states: tuple[DeclaredState, ...]) -> None:
    """Set what is known."""
    ordered = sorted(states, key=lambda state: (state.uid, state.name))
    directory.write(_FILE, {"states": [state.to_json() for state in ordered]})
