"""Garbage collection in a Python worker: state that lives for many epochs is not traversed after each of them, and the
objects that a task creates are traversed seldom as long as collections find no garbage.

PySpark runs a full collection after every task. It traverses every object of the state that the worker keeps from
epoch to epoch, which takes a third of a worker's time with 500,000 keys. Within a task, the collector traverses timers
and values in vain, which takes up to a fifth of the time with a timer for each record.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

#: Number of new container objects between two collections of the youngest generation. With CPython's default of 700,
#: batches of tuples look like garbage, which costs up to a fifth of the time.
THRESHOLD = 100_000
#: Upper bound of that number in a worker whose collections find next to nothing: each such collection doubles the
#: threshold, up to this. A worker in which a collection finds garbage goes back to `THRESHOLD` for good.
MOST = 16 * THRESHOLD
#: A collection that frees at most this many objects is not taken as a sign that user code creates cycles per record.
_FEW = 1_000
#: Number of tasks between two collections that traverse all objects. Only cycles wait for one; other objects are freed
#: as soon as they are unused, as always in CPython. With 50, workers were a third larger and hardly faster.
TASKS_PER_FULL_COLLECTION = 10


class WorkerCollector:
    """Tunes the garbage collector of one worker process as its tasks come and go."""

    def __init__(self) -> None:
        self._tasks = 0
        self._threshold = THRESHOLD
        #: whether a collection has found garbage
        self._finds = False

    def task_begins(self) -> None:
        """Freeze the objects that have survived the full collection after the previous task, so that the next
        collections skip them; unfreeze them every `TASKS_PER_FULL_COLLECTION` tasks."""
        if self._tasks == 0:
            gc.callbacks.append(self._collected)
            gc.set_threshold(self._threshold, 20, 20)
        self._tasks += 1
        if self._tasks % TASKS_PER_FULL_COLLECTION == 0:
            gc.unfreeze()
        else:
            gc.freeze()

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        """Adapt the threshold; the garbage collector calls this before and after each collection."""
        if phase == "start" or self._finds:
            return
        if info["collected"] > _FEW:
            self._finds, self._threshold = True, THRESHOLD
        elif info["generation"] == 0:
            self._threshold = min(2 * self._threshold, MOST)
        gc.set_threshold(self._threshold, 20, 20)
