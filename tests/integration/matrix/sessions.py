"""Drivers of the matrix: each is a process with a Spark session of its own that lives as long as it is of use."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.integration.matrix import driver
from tests.integration.matrix.program import Cell, PlannedMishap
from tests.support import faults
from tests.support.local_cluster import executor_pids
from tests.support.processes import ProcessFailed, ProcessGroup, start_driver

TIMEOUT_S = 300
T = TypeVar("T")


class Session:
    """A driver. ``plan``: where its faults are planned."""

    def __init__(self, folder: Path, master: str) -> None:
        self._commands = folder / "commands"
        self._commands.mkdir(parents=True)
        self._next = 0
        self.master = master
        self.plan = folder / "plan.json"
        self.process: ProcessGroup = start_driver(
            Path(driver.__file__),
            json.dumps({"folder": str(folder), "master": master}),
            log_file=folder / "driver.log",
            env=faults.environment(self.plan),
        )

    def begin(self, cell: Cell, mishap: PlannedMishap | None = None) -> None:
        """Starts a run of the program."""
        self._tell({"cell": asdict(cell), "mishap": asdict(mishap) if mishap else None})

    def _tell(self, told: dict[str, Any]) -> None:
        hidden = self._commands / "next"
        hidden.write_text(json.dumps(told))
        hidden.rename(self._commands / f"{self._next}.json")
        self._next += 1

    def wait_for(self, condition: Callable[[], T], what: str) -> T:
        """The first truthy value of a condition while the program runs."""

        def met_or_ended() -> T | bool:
            # looked at first: what the program did just before its end counts
            ended = self._result().exists()
            return condition() or ended

        found = self.process.wait_for(met_or_ended, TIMEOUT_S, what)
        if found is True and not condition():
            raise ProcessFailed(f"under {self.master} the program ended without {what}: {self._error()}")
        return condition()

    def end(self, error: str | None = None) -> None:
        """Waits for the end of the run. ``error``: a part of the one with which it must fail."""
        self.process.wait_for(self._result().exists, TIMEOUT_S, "the end of the program")
        found = self._error()
        if (found is None) != (error is None) or error is not None and error not in str(found):
            raise ProcessFailed(f"under {self.master} the program ended with {found}, not with {error}")

    def run(self, cell: Cell) -> None:
        """Runs the program to its end."""
        self.begin(cell)
        self.end()

    def run_into(self, cell: Cell, mishap: PlannedMishap) -> None:
        """Runs the program into a mishap that makes it fail."""
        self.begin(cell, mishap)
        self.end(mishap.message)

    def is_refused(self, cell: Cell, message: str) -> None:
        """Runs the program, which must fail with an error that says so."""
        self.begin(cell)
        self.end(message)

    def sql(self, statement: str) -> None:
        """Runs a statement in its Spark session."""
        self._tell({"sql": statement})
        self.end()

    def executors(self) -> list[int]:
        """The process ids of the executors, once all are there."""
        count = int(self.master.removeprefix("local-cluster[").split(",")[0])

        def found() -> list[int]:
            pids = executor_pids(self.process)
            return pids if len(pids) == count else []

        return self.process.wait_for(found, TIMEOUT_S, f"{count} executors") or []

    def _result(self) -> Path:
        return self._commands / f"{self._next - 1}.result"

    def _error(self) -> str | None:
        error: str | None = json.loads(self._result().read_text())["error"]
        return error


class Sessions:
    """Those that live now, at most one for each master."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._living: dict[str, Session] = {}

    def of(self, master: str) -> Session:
        """The one with this master; it is started if it is not there."""
        if master not in self._living:
            self._living[master] = Session(self._folder / f"session-{next(self._numbers)}", master)
        return self._living[master]

    def kill(self, master: str) -> None:
        """Kills -9 all of its processes at once."""
        self._living.pop(master).process.kill()

    def keep_only(self, *masters: str) -> None:
        """Ends those with other masters."""
        for master in set(self._living) - set(masters):
            self.kill(master)

    def __enter__(self) -> Sessions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.keep_only()
