"""The files through which an epoch informs the planner of the next ones.

    <planner>/ `EpochRequested`, `StoredEpochTimes`, `StoredTimers`
    <query>/   `StoredReached`, `GivenUpPlan`

Epochs are planned in a process beside the driver; under Spark Connect, it may be on another machine. ``<planner>`` is
the query's directory, or, where that is on remote storage and the process on the driver's machine, a temporary one of
the driver (`directory_beside_driver`): a new driver starts without the files in it. The planner polls the first file
while it waits. It reads the second and the third one when the epoch that wrote them is committed; what a plan makes of
them is then part of its offset. It reads the last one when the query starts.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from flinkish.errors import CorruptStateError
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.sizer import EpochTimes
from flinkish.storage.paths import is_local
from flinkish.storage.stored_file import StoredFile


@cache
def directory_beside_driver(query: str) -> str:
    """The temporary directory of this driver for what its epochs tell the planner of a query; it is deleted with the
    driver. "" if the query's own directory is local, too. Not for Spark Connect, whose planner may be elsewhere."""
    if is_local(query):
        return ""
    directory = tempfile.mkdtemp(prefix="flinkish-planner-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


class _ForPlanner(StoredFile):
    """Base of the files that make plans better, and that plans do not rest on."""

    FOLDER = "<query>"
    SEALED = False
    LENIENT = True
    READER = "the planner"
    REMEDY = "delete it, then start the job again"
    ERROR = CorruptStateError


@dataclass(frozen=True)
class EpochRequested(_ForPlanner):
    """The last epoch in which user code has asked that the next one be planned at once."""

    NAME = "epoch-requested"
    BARE = True
    WHEN = "once it has"

    epoch: int


@dataclass(frozen=True)
class StoredReached(_ForPlanner):
    """What the tasks of the sources had reached after each of the last two epochs that have run. It holds two: if the
    last one runs again, it begins with what the one before it has left."""

    NAME = "reached-watermarks"
    BARE = True
    WHEN = "of a job with aligned sources, or sources that learn from their tasks"

    epochs: list[tuple[int, Reached]]


@dataclass(frozen=True)
class StoredTimers(_ForPlanner):
    """Vertex and subtask -> timestamp in ms of its first processing-time timer."""

    NAME = "pending-timers"
    BARE = True
    WHEN = "of a job with such timers"

    timers: dict[str, int]


@dataclass(frozen=True)
class StoredEpochTimes(_ForPlanner):
    """How long the last epoch has taken, by which the next one is sized. There is no file if that is not known: there
    was no epoch, an earlier run has prepared it, the driver has died while it was committed, or the query was moved."""

    NAME = "epoch-times"
    BARE = True
    WHEN = "of a job whose epochs are sized"

    times: EpochTimes


@dataclass(frozen=True)
class GivenUpPlan(StoredFile):
    """The plan of the epoch that a query has given up last: the offset at its end, and its number in the query. The
    epoch is taken out of the query's log only after the file is written, and planned anew; but what its plan had found
    (new splits and where they start, pages of a service that may not give them again) stays found."""

    NAME = "given-up.json"
    FOLDER = "<query>"
    WHEN = "once an epoch was given up"
    READER = "the planner; the driver"
    REMEDY = (
        "restore the file from a copy; or delete it: splits that were found for that epoch only are looked for again, "
        "so that a service that gives a page once gives others"
    )
    DURABLE = True
    ERROR = CorruptStateError

    offset: dict[str, Any]
    batch: int | None = None


@dataclass(frozen=True)
class ReachedWatermarks:
    """What the tasks of the sources of one query have reached."""

    query: str

    def write(self, epoch: int, reached: Reached) -> None:
        """Add what an epoch that has run has reached. The epoch is prepared only after this."""
        before = [entry for entry in self._entries() if entry[0] < epoch][-1:]
        known = before[0][1] if before else Reached()
        StoredReached([*before, (epoch, reached.behind(known))]).write(self.query)

    def read(self, before: int | None = None) -> Reached:
        """What the last epoch has reached, or the last one before this epoch; nothing if there is none."""
        entries = [one for number, one in self._entries() if before is None or number < before]
        return entries[-1] if entries else Reached()

    def _entries(self) -> list[tuple[int, Reached]]:
        """The epochs of the file in their order; none if the file is of another version."""
        found = StoredReached.read(self.query)
        return [] if found is None else found.epochs


#: path of a file of `StoredTimers` -> its content, if this process has written it
_written_timers: dict[str, dict[str, int]] = {}


@dataclass(frozen=True)
class PendingTimers:
    """Which subtasks have processing-time timers, so that epochs are planned for them. A driver that begins does not
    trust the file: the one before may have died before it has written it."""

    planner: str

    def update(self, timers: Mapping[str, int | None]) -> None:
        """Write the timestamps of the first timers of the subtasks that an epoch has run; None: it has none. Those of
        other subtasks stay as this process has written them."""
        before = _written_timers.get(self.planner)
        both = sorted({**(before or {}), **timers}.items())
        after = {task: time_ms for task, time_ms in both if time_ms is not None}
        if after != before:
            StoredTimers(after).write(self.planner)
            _written_timers[self.planner] = after

    def earliest(self) -> int | None:
        """The timestamp of the first timer of all; None if there is none."""
        found = StoredTimers.read(self.planner)
        return None if found is None else min(found.timers.values(), default=None)
