"""Garbage collection in a Python worker: state that lives for many epochs is not looked at after each of them.

PySpark collects all garbage after every task. That passes through each object of the state which the worker keeps from
epoch to epoch: with 500,000 keys a third of a worker's time.
"""

from __future__ import annotations

import gc

#: New container objects between two collections of the youngest ones. Batches of tuples look like garbage to CPython's
#: default of 700: up to a fifth of the time.
THRESHOLD = 100_000
#: Tasks between two collections that pass through everything. Only cycles wait for one; what is not part of a cycle
#: goes as soon as it is unused, as ever. With 50 instead, workers were a third larger and hardly faster.
TASKS_PER_FULL_COLLECTION = 10


class WorkerCollector:
    """Of one worker process."""

    def __init__(self) -> None:
        self._tasks = 0

    def task_begins(self) -> None:
        """What lives now has outlived the collection behind the task before: it is taken out of the next ones."""
        if self._tasks == 0:
            gc.set_threshold(THRESHOLD, 20, 20)
        self._tasks += 1
        if self._tasks % TASKS_PER_FULL_COLLECTION == 0:
            gc.unfreeze()
        else:
            gc.freeze()
