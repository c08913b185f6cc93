"""Python workers of their own for what is done beside the epochs.

Spark hands out idle workers in the order in which they became idle, so the stages of an epoch tend to find the workers
again that have run them before, with the state of their tasks decoded. A checkpoint that used workers of the same
pool would mix up that order for good: with a million keys all later epochs took 1.6 times as long. Spark keeps a pool
for each set of environment variables that functions ask for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flinkish.spark.session import is_remote

#: The variable whose value names the pool.
VARIABLE = "FLINKISH_WORKERS"
BESIDE_EPOCHS = "beside-epochs"
#: Niceness of these workers: where there are too few cores, epochs have them.
NICENESS = 10

_lock = threading.Lock()


@contextmanager
def workers_beside_epochs(spark: Any) -> Iterator[None]:
    """Python functions that a DataFrame is given inside run in workers that no epoch uses.

    A function that another thread makes at this moment does so too, which costs time and nothing else. Under Spark
    Connect the server decides.
    """
    if is_remote(spark):
        yield
        return
    context = spark.sparkContext
    with _lock:
        usual = context.environment
        # another dict: PySpark may just be going through this one in the thread of an epoch
        context.environment = {**usual, VARIABLE: BESIDE_EPOCHS}
        try:
            yield
        finally:
            context.environment = usual


def give_way_to_epochs() -> None:
    """To be called in a worker: lowers its priority, once, if it is one beside the epochs."""
    if os.environ.get(VARIABLE) == BESIDE_EPOCHS and hasattr(os, "nice"):
        os.nice(max(0, NICENESS - os.nice(0)))
