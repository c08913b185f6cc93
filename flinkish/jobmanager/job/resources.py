"""What follows from the task managers of a job, as far as they are known: its slots and waves, and memory that is about
to run out.

Rule: these are pure functions of descriptions. What is not known is left out: no limit follows from a part of a sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from flinkish.common.configuration import Configuration
from flinkish.common.memory import MemoryConfiguration, short_text
from flinkish.common.options import cluster, core, flinkish, memory
from flinkish.jobmanager.job.description import SlotsDescription
from flinkish.jobmanager.job.task_managers import REGISTERED, TaskManagerDescription

#: The part of a limit from which on it is near.
NEAR = 0.9


def describe_slots(required: int, managers: Sequence[TaskManagerDescription]) -> SlotsDescription:
    """The slots that a job needs and those that there are, with what follows in words.

    Args:
        required: those in which its widest level runs at once.
        managers: the task managers; none: they are not known.
    """
    slots = [one.slots for one in managers if one.status == REGISTERED]
    known = [count for count in slots if count is not None]
    if not managers or len(known) < len(slots):
        return SlotsDescription(required)
    present = sum(known)
    waves = -(-required // present) if present else None
    note = ""
    if waves is None:
        note = f"waits for slots: needs {required}, has 0"
    elif waves > 1:
        note = (
            f"{present} slot{'s'[: present != 1]}, and the widest level has {required} Spark tasks: they run in "
            f"{waves} waves; add executors, or set {core.PARALLELISM.key} or {flinkish.SPARK_PARTITIONS.key} to less"
        )
    return SlotsDescription(required, present, min(known, default=None), waves, note)


def unlike_configured(configuration: Configuration, managers: Iterable[TaskManagerDescription]) -> str:
    """What to say of task managers that have another number of slots than the configuration says; "" if none has."""
    wanted = configuration.get(cluster.NUMBER_OF_TASK_SLOTS)
    others = sorted({one.slots for one in managers if one.status == REGISTERED and one.slots} - {wanted})
    if not configuration.contains(cluster.NUMBER_OF_TASK_SLOTS) or not others:
        return ""
    return (
        f"{cluster.NUMBER_OF_TASK_SLOTS.key} is {wanted}, and executors have {', '.join(map(str, others))} slots "
        "(spark.executor.cores / spark.task.cpus, or the N of a master local[N])"
    )


def near_limits(managers: Iterable[TaskManagerDescription], sizes: MemoryConfiguration | None) -> dict[str, str]:
    """Id of a task manager, or name of a host -> what to say of its memory, if it is about to run out.

    Args:
        sizes: what each task manager has of each area; None: it is not known.
    """
    found, held_on, physical = dict[str, str](), defaultdict[str, int](int), dict[str, int]()
    for one in managers:
        python = sum(worker.rss_bytes or 0 for worker in one.workers)
        if one.status != REGISTERED or not python:
            continue
        jvm = one.memory.jvm_rss
        held_on[one.host] += python + (jvm or 0)
        if one.memory.physical is not None:
            physical[one.host] = one.memory.physical
        # the driver's own process and workers have the machine, and nobody limits them
        limits = [] if sizes is None or one.in_driver else list(_limits(sizes, python, jvm))
        held, limit, of, raised = max(limits, key=lambda each: each[0] / each[1], default=(0, 1, "", ""))
        if held >= NEAR * limit:
            found[one.id] = (
                f"task manager '{one.id}': {of} {short_text(held)} of {short_text(limit)}; a container kills it beyond "
                f"its limit: raise {raised}, or have fewer slots per executor"
            )
    for host, limit in physical.items():
        if held_on[host] >= NEAR * limit:
            found[host] = (
                f"host {host}: the Python workers and executors of the job hold {short_text(held_on[host])} of the "
                f"{short_text(limit)} of the machine or container, which may kill them: give it more, or have fewer "
                f"slots, or a smaller {memory.MANAGED_SIZE.key}"
            )
    return found


def _limits(sizes: MemoryConfiguration, python: int, jvm: int | None) -> Iterator[tuple[int, int, str, str]]:
    """What is held of a limit, the limit, what holds it, and the key to raise."""
    own = sizes.origin == MemoryConfiguration.OF_FLINK
    if sizes.python:
        keys = (
            f"{memory.TASK_OFF_HEAP_SIZE.key} (and {memory.PROCESS_SIZE.key})"
            if own
            else "spark.executor.pyspark.memory"
        )
        yield python, sizes.python, "its Python workers hold", keys
    if sizes.process and jvm is not None:
        key = memory.PROCESS_SIZE.key if own else "spark.executor.memoryOverhead"
        yield python + jvm, sizes.process, "its JVM and its Python workers hold", key
