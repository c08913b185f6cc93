"""What a TaskManager, which is an executor with its Python workers, has: its task slots and its memory.

Rule: where Spark runs already, nothing is changed: what it has is read and shown. What it is started with:
`flinkish.spark.start_settings`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.memory import MemoryConfiguration, areas_of
from flinkish.common.options import cluster
from flinkish.errors import NoResourceAvailableError
from flinkish.launch.spark_command import ONE_JVM
from flinkish.runtime.phases import SystemClock
from flinkish.spark.executor_status import status_store
from flinkish.spark.session import is_remote
from flinkish.spark.settings import SparkWork
from flinkish.spark.start_settings import (
    CORES,
    CPUS,
    DRIVER_HEAP,
    EXECUTOR_HEAP,
    OFF_HEAP,
    OVERHEAD,
    PYTHON,
    USES_OFF_HEAP,
    spark_bytes,
)

#: Spark's rule for the overhead where no setting says it: a part of the heap, and a minimum.
_OVERHEAD_FACTOR, _LEAST_OVERHEAD = "spark.executor.memoryOverheadFactor", "spark.executor.minMemoryOverhead"


def memory_of(spark: Any, configuration: Configuration) -> tuple[MemoryConfiguration | None, str]:
    """The memory of a TaskManager of a session, None where nobody can be asked (Spark Connect); and, in words, that
    sizes in the configuration have no effect, "" if they have.

    Raises:
        ConfigurationError: sizes contradict each other.
    """
    areas = areas_of(configuration)
    if status_store(spark) is None:
        return None, _NO_EFFECT if areas is not None else ""
    conf, one_jvm = spark.sparkContext.getConf(), _is_one_jvm(spark)
    heap_key = DRIVER_HEAP if one_jvm else EXECUTOR_HEAP
    heap = spark_bytes(conf.get(heap_key, "1g"))
    if areas is not None and heap == areas.heap >> 20 << 20:
        return areas.configured(), ""
    if one_jvm:
        heap = int(spark._jvm.java.lang.Runtime.getRuntime().maxMemory())
    off_heap = spark_bytes(conf.get(OFF_HEAP, "0"), "b") if conf.get(USES_OFF_HEAP, "false") == "true" else 0
    python = spark_bytes(conf.get(PYTHON, "0")) or None
    overhead = None if one_jvm or heap is None else _overhead(conf, heap)
    known = [heap, off_heap, python or 0]
    total = None if overhead is None or None in known else sum(filter(None, known)) + overhead
    found = MemoryConfiguration(
        framework_heap=0,
        task_heap=heap,
        framework_off_heap=0,
        task_off_heap=off_heap,
        network=0,
        python=python,
        jvm_overhead=overhead,
        process=total,
        origin="Spark's settings",
    )
    return found, f"{_NO_EFFECT}: {heap_key} is {conf.get(heap_key, '1g')}" if areas is not None else ""


_NO_EFFECT = "the sizes taskmanager.memory.* have no effect, since Spark was started without them"


def _overhead(conf: Any, heap: int) -> int | None:
    given = conf.get(OVERHEAD, None)
    if given is not None:
        return spark_bytes(given)
    part, least = float(conf.get(_OVERHEAD_FACTOR, "0.1")), spark_bytes(conf.get(_LEAST_OVERHEAD, "384m")) or 0
    return max(int(heap * part), least)


def _is_one_jvm(spark: Any) -> bool:
    return ONE_JVM.fullmatch(str(spark.sparkContext.master)) is not None


@dataclass(frozen=True)
class Slots:
    """The task slots of the executors that a session has now, and how many executors have how many of them."""

    present: int
    #: slots of an executor -> the number of executors that have so many
    executors: dict[int, int]

    @property
    def per_executor(self) -> int:
        """The slots of an executor; the least if they differ; 1 if there are none."""
        return min(self.executors, default=1)


def slots_of(spark: Any) -> Slots | None:
    """The slots that there are; None where nobody can be asked (Spark Connect)."""
    store = status_store(spark)
    if store is None:
        return None
    found = Counter(one.slots for one in store.look(SystemClock().now_ms()) if one.active and one.slots)
    return Slots(sum(slots * count for slots, count in found.items()), dict(found))


#: Seconds between two looks at the slots; how long their number must have stayed the same to be taken for all that
#: come, and how long that is waited for.
_LOOK_S, _STABLE_S, _PATIENCE_S = 0.2, 2.0, 10.0


def await_slots(
    spark: Any, needed: int, timeout_s: float, say: Callable[[str], None], is_to_end: Callable[[], bool]
) -> Slots | None:
    """Wait until there is a slot; returns the slots, None under Spark Connect, where nobody can be asked.

    Args:
        needed: how many the job needs to run without waves.
        timeout_s: how long to wait.
        say: is told in words what is waited for.
        is_to_end: whether the wait is to end, with no slots.

    Raises:
        NoResourceAvailableError: none has come in time.
    """
    slots = slots_of(spark)
    if slots is None or slots.present:
        return slots
    begun = time.monotonic()
    with _asking_for_executors(spark, needed):
        while not (slots.present or is_to_end()):
            say(f"waits for slots: needs {needed}, has 0")
            if time.monotonic() - begun >= timeout_s:
                raise NoResourceAvailableError(
                    f"there are no task slots after {timeout_s:g} s: the job needs {needed}, and Spark has no executor",
                    where=f"configuration key '{cluster.SLOT_REQUEST_TIMEOUT.key}', master {spark.sparkContext.master}",
                    expected="at least one executor",
                    hint="look at the page of Spark's master or at the resource manager: whether workers are there and "
                    f"have the memory and the cores that an executor asks for ({EXECUTOR_HEAP}, {CORES}); then start "
                    "the same job again",
                )
            time.sleep(_LOOK_S)
            slots = slots_of(spark) or slots
    return slots


@contextmanager
def _asking_for_executors(spark: Any, needed: int) -> Iterator[None]:
    """Within the block, tasks wait for executors: with dynamic allocation there are none before tasks do."""
    context = spark.sparkContext
    if not _allocates_dynamically(context.getConf()):
        yield
        return
    work = SparkWork(spark, "slots")

    def ask() -> None:
        with suppress(Exception), work:  # it is cancelled
            context.setJobDescription("asks for executors")
            context.parallelize(range(needed), needed).count()

    Thread(target=ask, name="flinkish-slots", daemon=True).start()
    try:
        yield
    finally:
        work.end()


def _allocates_dynamically(conf: Any) -> bool:
    return str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"


def slots_for_parallelism(spark: Any, slots: Slots | None, is_to_end: Callable[[], bool]) -> int | None:
    """The number of slots that a session has once its executors have come, which is the parallelism of a job for which
    nobody has set one: as many as its settings say, as far as they do, and not fewer than are there.
    None: nobody says it.

    Args:
        slots: those that are there; None: nobody can be asked.
        is_to_end: whether the wait is to end.
    """
    if slots is None:
        return _slots_of_server(spark)
    if _is_one_jvm(spark):
        return slots.present
    expected, begun = _expected(spark, slots.per_executor), time.monotonic()
    changed, known = begun, slots.present
    while not is_to_end() and known < (expected or known + 1):
        now = time.monotonic()
        if now - begun > _PATIENCE_S or (expected is None and now - changed > _STABLE_S):
            break
        time.sleep(_LOOK_S)
        present = (slots_of(spark) or slots).present
        changed, known = (time.monotonic(), present) if present != known else (changed, known)
    return max(known, expected or 1)


def _expected(spark: Any, per_executor: int) -> int | None:
    """How many slots the settings of a session promise; None if they do not say."""
    conf, master = spark.sparkContext.getConf(), str(spark.sparkContext.master)
    found = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*\d+\s*,\s*\d+\s*\]", master)
    if found:
        return int(found[1]) * per_executor
    dynamic = _allocates_dynamically(conf)
    executors = conf.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances", None)
    if executors is not None and 0 < int(executors) < 1 << 20:
        return int(executors) * per_executor
    most = conf.get("spark.cores.max", None)
    return None if most is None else max(1, int(most) // int(conf.get(CPUS, "1")))


#: So many rows have all partitions of a range.
_ROWS = 1 << 16


def _slots_of_server(spark: Any) -> int | None:
    """The slots of a server of Spark Connect, which are the partitions of a range of numbers there."""
    from pyspark.sql import functions

    if not is_remote(spark):
        return None
    partition = spark.range(_ROWS).select(functions.spark_partition_id().alias("partition"))
    return max(1, int(partition.distinct().count()))


def slots_per_executor(spark: Any, slots: Slots | None) -> int:
    """The slots of an executor, of which none need be there any more; 1 if nobody says it."""
    if slots is not None and slots.executors:
        return slots.per_executor
    with suppress(Exception):  # a server of Spark Connect may not tell its settings
        return max(1, int(spark.conf.get(CORES)) // int(spark.conf.get(CPUS, "1")))
    return 1
