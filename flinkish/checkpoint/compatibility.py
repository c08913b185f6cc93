"""Reports what would become of each state of a savepoint if a program were started from it, and finds out which states
a program declares: those of all its operators before it runs, and those that its tasks have declared so far.

The status of a state, by operator uid and state name:

    RESTORED      the program restores it
    NEW           the program declares it and the savepoint does not have it: it begins empty
    DROPPED       the program has no operator with that uid; only allowed if non-restored state is allowed
    INCOMPATIBLE  its kind differs, rows cannot be decoded, or the declared type cannot hold its values
    UNKNOWN       restored; whether its type fits shows when the job runs, since the operator could not be opened
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo.arrow import spark_type
from flinkish.errors import FencedError, OperationError, SavepointError
from flinkish.graph.job_graph import stateful_without_uid
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import States
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates, StoredState
from flinkish.runtime.state.state_rows import TIMERS_PREFIX, WATERMARK, DeclaredState
from flinkish.runtime.stored.pickling import to_worker
from flinkish.runtime.task.tasks import states_of_program
from flinkish.spark.failures import translate
from flinkish.spark.worker import Deployment, failures_marked

#: Name under which the position of a source is shown.
POSITION = "(position)"


class StateStatus(Enum):
    """What becomes of a state of a savepoint, or of the program, when the program starts from the savepoint.

    RESTORED: the program restores it. NEW: the program declares it and the savepoint does not have it, so it begins
    empty. DROPPED: the program has no operator with that uid. INCOMPATIBLE: the program cannot restore it. UNKNOWN: it
    is restored, but whether its type fits shows only when the job runs, since the operator could not be opened.
    """

    RESTORED = "restored"
    NEW = "new"
    DROPPED = "dropped"
    INCOMPATIBLE = "incompatible"
    UNKNOWN = "unknown until run"


@dataclass(frozen=True)
class StateCompatibility:
    """One state of one operator, or the position of one source, with its status.

    Args:
        uid: uid of the operator or source.
        state: name of the state; `POSITION` for the position of a source.
        kind: kind of the state: ``value``, ``list``, ``map``, ...; ``source`` for a position.
        status: what becomes of it.
        rows: the number of its rows in the savepoint.
        reason: why it has this status; "": there is nothing to explain.
    """

    uid: str
    state: str
    kind: str
    status: StateStatus
    rows: int = 0
    reason: str = ""


@dataclass(frozen=True)
class CompatibilityReport:
    """The comparison of a savepoint with a program. ``edited``: the savepoint's table was changed after it was written.

    Example::

        report = flinkish.state.compatibility(env, "/savepoints/savepoint-1f")
        if not report.compatible:
            print(report.text())
    """

    savepoint: str
    job_name: str
    edited: bool
    states: tuple[StateCompatibility, ...]
    #: stateful operators to which the program gives no uid
    without_uid: tuple[str, ...] = ()
    #: whether the state of operators that the program no longer has may be dropped
    allow_non_restored_state: bool = False
    #: whether it is no savepoint, but state of the job's own, which ``savepoint`` then says in words
    own_state: bool = False

    def of(self, status: StateStatus) -> tuple[StateCompatibility, ...]:
        """The states with that status, sorted by uid and name."""
        return tuple(state for state in self.states if state.status is status)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the program cannot be started from the savepoint; empty: it can."""
        found = []
        if self.without_uid:
            found.append("stateful operators of the program have no uid: " + ", ".join(self.without_uid))
        dropped = sorted({state.uid for state in self.of(StateStatus.DROPPED)})
        if dropped and not self.allow_non_restored_state:
            found.append(f"there is state of operators that the program does not have: {', '.join(dropped)}")
        for state in self.of(StateStatus.INCOMPATIBLE):
            found.append(f"uid {state.uid}, state {state.state}: {state.reason}")
        return tuple(found)

    @property
    def hints(self) -> tuple[str, ...]:
        """What to do about the problems; empty if there are none."""
        found = []
        if self.without_uid:
            found.append("give each of them the uid(...) under which its state is stored, or a new one")
        if self.of(StateStatus.DROPPED) and not self.allow_non_restored_state:
            found.append(
                "give the operator its old uid, or allow the state to be dropped (-n / --allowNonRestoredState, "
                "execution.state-recovery.ignore-unclaimed-state: true)"
            )
        if self.of(StateStatus.INCOMPATIBLE):
            found.append(
                "declare the state as it was, change its values with env.register_state_migration(uid, state, "
                "function), mend the rows in the savepoint's table, or give the new state a name of its own"
            )
        return tuple(found)

    @property
    def compatible(self) -> bool:
        """Whether the program can be started from the savepoint."""
        return not self.problems

    def text(self) -> str:
        """The report as text for people: a table of all states, then the problems and the hints."""
        verdict = "compatible" if self.compatible else "NOT compatible"
        edited = ", edited" if self.edited else ""
        shown = self.savepoint if self.own_state else f"savepoint {self.savepoint}"
        lines = [f"{shown}{edited}", f"job '{self.job_name}': {verdict}", self.table()]
        lines += [f"problem: {problem}" for problem in self.problems]
        lines += [f"to do: {hint}" for hint in self.hints]
        return "\n".join(lines)

    def table(self) -> str:
        """All states as a table for people."""
        header = ("uid", "state", "kind", "rows", "status")
        rows = [(s.uid, s.state, s.kind, str(s.rows), s.status.value) for s in self.states]
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        lines = []
        for row, reason in zip([header, *rows], ["", *(state.reason for state in self.states)]):
            cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths))
            lines.append(f"  {cells}  {reason}".rstrip())
        return "\n".join(lines)


@dataclass(frozen=True)
class ProgramOutline:
    """The uids of a program: those of its operators and of its sources with positions; and its stateful operators
    without a uid."""

    job_name: str
    operators: frozenset[str]
    sources: frozenset[str]
    without_uid: tuple[str, ...] = ()


def outline_of(job: JobDescriptor, sources: Iterable[str]) -> ProgramOutline:
    """The uids of a program, for the comparison with a savepoint. ``sources``: those of its sources with positions."""
    operators = frozenset(descriptor.uid for vertex in job.vertices for descriptor in vertex.operators)
    return ProgramOutline(job.name, operators, frozenset(sources), stateful_without_uid(job))


def incompatible(report: CompatibilityReport, job: JobDescriptor) -> SavepointError:
    """The error for a program that cannot be started from a savepoint, with the whole report."""
    refused = SavepointError(
        "; ".join(report.problems),
        where=f"job '{job.name}', savepoint {report.savepoint}",
        expected="a program that can take in all of the savepoint",
        hint="; ".join(report.hints),
    )
    refused.details = report.table()
    return refused


def compare(
    savepoint: str,
    edited: bool,
    stored: Iterable[StoredState],
    positions: Iterable[str],
    outline: ProgramOutline,
    program: ProgramStates,
    allow_non_restored_state: bool,
) -> CompatibilityReport:
    """Compare a savepoint with a program.

    The comparison is pure: values in, a report out.

    Args:
        savepoint: path of the savepoint, for the report.
        edited: whether the savepoint's table was changed after it was written.
        stored: what was found in the rows of each state.
        positions: uids of the sources whose positions the savepoint has.
        outline: the uids of the program.
        program: the states that the program declares.
        allow_non_restored_state: whether the state of operators that the program does not have may be dropped.
    """
    states = [_compare_state(state, outline, program) for state in stored if state.state != WATERMARK]
    states += _new_states(states, program)
    states += _compare_sources(frozenset(positions), outline)
    return CompatibilityReport(
        savepoint,
        outline.job_name,
        edited,
        tuple(sorted(states, key=lambda state: (state.uid, state.state))),
        outline.without_uid,
        allow_non_restored_state,
    )


def _compare_state(stored: StoredState, outline: ProgramOutline, program: ProgramStates) -> StateCompatibility:
    def result(status: StateStatus, reason: str = "") -> StateCompatibility:
        return StateCompatibility(stored.uid, stored.state, stored.kind, status, stored.rows, reason)

    if stored.uid not in outline.operators:
        return result(StateStatus.DROPPED, "the program has no operator with that uid")
    wanted = program.of(stored.uid, stored.state)
    if wanted is not None and wanted.kind != stored.kind:
        return result(StateStatus.INCOMPATIBLE, f"it is {stored.kind} state, the program declares {wanted.kind} state")
    if stored.bad_rows:
        return result(StateStatus.INCOMPATIBLE, f"{stored.bad_rows} of {stored.rows} rows; {stored.problem}")
    if stored.uid in program.unknown:
        return result(StateStatus.UNKNOWN, program.unknown[stored.uid])
    if wanted is None and program.states.get(stored.uid) and not _is_internal(stored.state):
        return result(StateStatus.RESTORED, "kept; the operator did not ask for it when it was opened")
    return result(StateStatus.RESTORED)


def _is_internal(name: str) -> bool:
    """Whether a state is the engine's own: timers, contents of windows, or times of expiry (TTL)."""
    return name.startswith((TIMERS_PREFIX, "__"))


def _new_states(found: list[StateCompatibility], program: ProgramStates) -> list[StateCompatibility]:
    known = {(state.uid, state.state) for state in found}
    return [
        StateCompatibility(uid, name, state.kind, StateStatus.NEW)
        for uid, named in program.states.items()
        for name, state in named.items()
        if (uid, name) not in known
    ]


def _compare_sources(positions: frozenset[str], outline: ProgramOutline) -> list[StateCompatibility]:
    found = []
    for uid in sorted(positions | outline.sources):
        if uid not in outline.sources:
            status, reason = StateStatus.DROPPED, "the program has no source with that uid"
        elif uid not in positions:
            status, reason = StateStatus.NEW, "the source begins at its beginning"
        else:
            status, reason = StateStatus.RESTORED, ""
        found.append(StateCompatibility(uid, POSITION, "source", status, int(uid in positions), reason))
    return found


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
    """The states that the program declares. ``where``: names the job in errors.

    A worker finds them out before the program runs: it opens the keyed operators once, on empty state, and closes them
    again. This happens in a worker and not in the driver because that is where ``open`` runs later, with the modules
    and the network that it needs. So ``open`` runs once more than the job itself calls it. If it fails, the operator's
    states are unknown until the job runs.
    """
    one = spark.range(1).coalesce(1).mapInArrow(OpenOperators(deployment), _SCHEMA)
    try:
        rows = one.collect()
    except Exception as error:
        raise translate(error, where, deployment.secret) from error
    found = pickle.loads(bytes(rows[0]["states"]))
    assert isinstance(found, ProgramStates)
    return found


def with_changes(program: ProgramStates, before: tuple[DeclaredState, ...]) -> ProgramStates:
    """Mark the states, and the keys, whose type differs from the one that was declared when the savepoint was written
    (``before``)."""
    written = {(state.uid, state.name): (state.map_key_type, state.value_type) for state in before}

    def marked(uid: str, name: str, state: ProgramState) -> ProgramState:
        key, value = (None if kind is None else spark_type(kind) for kind in (state.map_key_type, state.value_type))
        return replace(state, type_changed=written.get((uid, name)) != (key, value))

    states = {
        uid: {name: marked(uid, name, state) for name, state in named.items()} for uid, named in program.states.items()
    }
    of_keys = {(state.uid, state.key_type) for state in before if state.key_type is not None}
    declared = {uid: spark_type(key_type) for uid, key_type in program.key_types.items()}
    other_keys = frozenset(uid for uid, written_type in of_keys if declared.get(uid, written_type) != written_type)
    return replace(program, states=states, other_keys=other_keys)


_STATES_LOG = logging.getLogger("flinkish.CheckpointCoordinator")


class StateCatalog(JobObserver):
    """Keeps the states that the tasks of a job declare, which give types to the columns of its savepoints: adds those
    of each epoch to ``<job dir>/states.json``.

    Rule: the file only grows while a program runs; a state that is declared again with another type replaces its entry.
    """

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
                _STATES_LOG.warning("the file %s in %s cannot be written: %s", States.NAME, self._directory.path, error)
                return
            self._states = merged


def read_states(directory: JobDirectory) -> tuple[DeclaredState, ...]:
    """The states that the job in a directory has declared so far."""
    return tuple((directory.read(States) or States([])).states)


def write_states(directory: JobDirectory, states: tuple[DeclaredState, ...]) -> None:
    """Write these as all states of the job, in place of those that the file holds."""
    ordered = sorted(states, key=lambda state: (state.uid, state.name))
    directory.write(States(ordered))
