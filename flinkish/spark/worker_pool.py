"""A separate pool of Python workers for work beside the epochs, such as checkpoints.

Spark hands out idle workers in the order in which they became idle, so each stage of an epoch tends to get the workers
that have run it before and hold the decoded state of its tasks. A checkpoint that used workers of the same pool would
mix up that order for good: with a million keys, all later epochs took 1.6 times as long. Spark keeps one pool for each
set of environment variables that functions ask for, so a variable makes the second pool.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flinkish.spark.session import is_remote

#: The environment variable whose value names the pool.
VARIABLE = "FLINKISH_WORKERS"
BESIDE_EPOCHS = "beside-epochs"
#: Niceness of the workers of this pool: if there are too few cores, the epochs get them.
NICENESS = 10

_lock = threading.Lock()


@contextmanager
def workers_beside_epochs(spark: Any) -> Iterator[None]:
    """Python functions that are applied to a DataFrame inside this context run in workers that no epoch uses.

    So does a function that another thread applies at the same time, which costs time and nothing else. Under Spark
    Connect this has no effect: the server chooses the workers.
    """
    if is_remote(spark):
        yield
        return
    context = spark.sparkContext
    with _lock:
        usual = context.environment
        # a new dict: PySpark may be iterating over the present one in the thread of an epoch
        context.environment = {**usual, VARIABLE: BESIDE_EPOCHS}
        try:
            yield
        finally:
            context.environment = usual


def give_way_to_epochs() -> None:
    """Lower the priority of this worker process if it belongs to the pool beside the epochs. Further calls do
    nothing."""
    if os.environ.get(VARIABLE) == BESIDE_EPOCHS and hasattr(os, "nice"):
        os.nice(max(0, NICENESS - os.nice(0)))
