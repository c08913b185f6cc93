"""What changes between two runs of the program, or while it runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from flinkish.runtime.phases import Phase
from tests.integration.matrix.program import SINKS_OF, Cell, PlannedMishap
from tests.integration.matrix.records import RECORDS
from tests.integration.matrix.sessions import Sessions
from tests.support import faults
from tests.support.local_cluster import kill_executor

TWO_EXECUTORS = "local-cluster[2,1,1024]"
ONE_EXECUTOR = "local-cluster[1,1,1024]"
KILLED_AT = (Phase.COMMITTABLES_WRITTEN, Phase.EPOCH_PREPARED, Phase.COMMIT_BEGUN, Phase.SINK_COMMITTED)


@dataclass(frozen=True)
class Change:
    """One kind of change.

    Args:
        happen: runs a program until everything has happened to it, but does not run it to its end.
        end: the master under which it is run to its end; None: it has come to its end already.
        masters: of the sessions that it leaves alive for the next program.
    """

    happen: Callable[[Cell, Sessions], None]
    end: str | None
    masters: tuple[str, ...]

    def run(self, cell: Cell, sessions: Sessions) -> None:
        """Everything, to the end of the program."""
        self.happen(cell, sessions)
        if self.end is not None:
            sessions.of(self.end).run(cell)


def fail_in_a_subtask(cell: Cell, sessions: Sessions) -> None:
    """User code fails in subtask 1, when the other one has had its records."""
    sessions.of("local[4]").run_into(cell, PlannedMishap("raise"))


def fail_under_four_and_three_cores(cell: Cell, sessions: Sessions) -> None:
    """Two runs, each of which fails farther on."""
    sessions.of("local[4]").run_into(cell, PlannedMishap("raise", 0.3))
    sessions.of("local[3]").run_into(cell, PlannedMishap("raise", 0.6))


def fail_under_two_executors(cell: Cell, sessions: Sessions) -> None:
    """A run that fails on a cluster."""
    sessions.of(TWO_EXECUTORS).run_into(cell, PlannedMishap("raise"))


def kill_driver(
    cell: Cell, sessions: Sessions, phases: tuple[Phase, ...] = KILLED_AT, master: str = "local[2]"
) -> None:
    """A driver after the other is killed -9 with all its processes, while one of them is at a phase."""
    for number, phase in enumerate(phases):
        plan = sessions.of(master).plan
        # two kills in one epoch, then two in another
        faults.plan_fault(plan, phase, "wait", epoch=1 + number // 2)
        sessions.of(master).begin(cell)
        sessions.of(master).wait_for(partial(faults.happened, plan), f"the phase '{phase.value}'")
        sessions.kill(master)


def lose_an_executor(cell: Cell, sessions: Sessions) -> None:
    """The executor in which subtask 1 stands still is killed -9, and the program comes to its end without it."""
    session, mishap, folder = sessions.of(TWO_EXECUTORS), PlannedMishap("hold"), Path(cell.folder)
    executors = set(session.executors())
    session.begin(cell, mishap)
    mark = mishap.mark(folder)
    worker = session.wait_for(lambda: mark.exists() and mark.read_text().strip(), "subtask 1 to stand still")
    (executor,) = executors & {process.pid for process in psutil.Process(int(worker)).parents()}
    kill_executor(session.process, executor)
    mishap.let_go(folder)
    session.end()


def upgrade(cell: Cell, sessions: Sessions, program: str, refused: str = "") -> None:
    """The driver is killed -9 in the middle of a commit, and the program that goes on in the same directory has other
    sinks. ``refused``: with what message, if so; then the first program goes on."""
    kill_driver(cell, sessions, (Phase.SINK_COMMITTED,))
    session, upgraded = sessions.of("local[2]"), replace(cell, program=program)
    if refused:
        session.is_refused(upgraded, refused)
    session.run(cell if refused else upgraded)
    if program == "added":
        texts = [path.read_text() for path in cell.added_place.rglob("[!.]*") if path.is_file()]
        lines = [line for text in texts for line in text.splitlines()]
        # all of its branch but the epochs up to the one that was prepared
        assert 0 < len(set(lines)) == len(lines) < RECORDS


def put_back(cell: Cell, sessions: Sessions) -> None:
    """The job directory is put back from a copy that is older than what the sinks hold; then, as the message says, the
    newest one is."""
    session, directory = sessions.of("local[2]"), cell.job_directory
    copy, newest = directory.with_name("copy"), directory.with_name("newest")
    session.run_into(cell, PlannedMishap("raise", 0.3))
    shutil.copytree(directory, copy)
    session.run(cell)
    directory.rename(newest)
    copy.rename(directory)
    session.is_refused(cell, "is older than its output, as one that was put back from a copy")
    shutil.rmtree(directory)
    newest.rename(directory)
    session.run(cell)


_REFUSED = {"removed": "sink 'sink of rebalanced' is gone", "renamed": "sink 'renamed' is new"}
UPGRADES = {
    program: Change(partial(upgrade, program=program, refused=_REFUSED.get(program, "")), None, ("local[2]",))
    for program in SINKS_OF
    if program != "first"
}

CHANGES = {
    "subtask": Change(fail_in_a_subtask, "local[3]", ("local[4]", "local[3]")),
    "driver": Change(kill_driver, "local[2]", ("local[2]",)),
    "executor": Change(lose_an_executor, None, (TWO_EXECUTORS,)),
    "cores": Change(fail_under_four_and_three_cores, "local[1]", ("local[4]", "local[3]", "local[1]")),
    "executors": Change(fail_under_two_executors, ONE_EXECUTOR, (TWO_EXECUTORS, ONE_EXECUTOR)),
    **UPGRADES,
    "put back": Change(put_back, None, ("local[2]",)),
}
