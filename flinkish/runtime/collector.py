"""Garbage collection in a Python worker: state that lives for many epochs is not looked at after each of them, and
objects that a task makes are looked at seldom as long as they are no garbage.

PySpark collects all garbage after every task. That passes through each object of the state which the worker keeps from
epoch to epoch: with 500,000 keys a third of a worker's time. Within a task it is timers and values that the collector
looks at, in vain: with a timer for each record up to a fifth of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

#: New container objects between two collections of the youngest ones. Batches of tuples look like garbage to CPython's
#: default of 700: up to a fifth of the time.
THRESHOLD = 100_000
#: The same for a worker in which collections find next to nothing: each of them makes the next one come half as often,
#: down to this. A worker in which one finds garbage goes back to `THRESHOLD` for good.
MOST = 16 * THRESHOLD
#: So many objects in cycles are none that user code makes for each record.
_FEW = 1_000
#: Tasks between two collections that pass through everything. Only cycles wait for one; what is not part of a cycle
#: goes as soon as it is unused, as ever. With 50 instead, workers were a third larger and hardly faster.
TASKS_PER_FULL_COLLECTION = 10


class WorkerCollector:
    """Of one worker process."""

    def __init__(self) -> None:
        self._tasks = 0
        self._threshold = THRESHOLD
        #: whether a collection has found garbage
        self._finds = False

    def task_begins(self) -> None:
        """What lives now has outlived the collection behind the task before: it is taken out of the next ones."""
        if self._tasks == 0:
            gc.callbacks.append(self._collected)
            gc.set_threshold(self._threshold, 20, 20)
        self._tasks += 1
        if self._tasks % TASKS_PER_FULL_COLLECTION == 0:
            gc.unfreeze()
        else:
            gc.freeze()

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        """Called by the garbage collector, before and behind each collection."""
        if phase == "start" or self._finds:
            return
        if info["collected"] > _FEW:
            self._finds, self._threshold = True, THRESHOLD
        elif info["generation"] == 0:
            self._threshold = min(2 * self._threshold, MOST)
        gc.set_threshold(self._threshold, 20, 20)
