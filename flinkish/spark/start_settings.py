"""The settings of Spark that follow from the keys ``taskmanager.*``, where flinkish starts its JVM.

Rule: a setting of Spark's own that says something else is refused, and the platform's is overridden.

The heap of the JVM is Flink's heap; all else of a TaskManager lies off the heap, the state and the objects of the
Python workers too, and is Spark's memory overhead. Spark's limit for Python (``spark.executor.pyspark.memory``) is not
set: it limits the addresses of a worker and not its memory, which in a worker that has only imported its modules are
three times as much.
"""

from __future__ import annotations

import logging
import re

from flinkish.common.configuration import Configuration
from flinkish.common.memory import Areas, areas_of, memory_of_machine, short_text, size_text
from flinkish.common.options import cluster, memory
from flinkish.errors import ConfigurationError
from flinkish.launch.spark_command import ONE_JVM, SparkCommand

_LOG = logging.getLogger("flinkish.TaskManager")

_MIB = 1 << 20

#: The least heap with which Spark starts.
_LEAST_HEAP = 450 * _MIB

#: Spark's settings of the heap, of what an executor may take besides, and of the parts of the latter that it counts
#: apart, with the options of spark-submit for them.
DRIVER_HEAP, EXECUTOR_HEAP = "spark.driver.memory", "spark.executor.memory"
OVERHEAD, PYTHON = "spark.executor.memoryOverhead", "spark.executor.pyspark.memory"
OFF_HEAP, USES_OFF_HEAP = "spark.memory.offHeap.size", "spark.memory.offHeap.enabled"
CORES, CPUS = "spark.executor.cores", "spark.task.cpus"
_OPTIONS = {DRIVER_HEAP: "--driver-memory", EXECUTOR_HEAP: "--executor-memory", CORES: "--executor-cores"}

_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def spark_bytes(text: str, unit: str = "m") -> int | None:
    """The bytes of a size of Spark's; None if it is none. ``unit``: of a number without one, MiB for most settings.

    >>> spark_bytes("2g") == spark_bytes("2048"), spark_bytes("x")
    (True, None)
    """
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else int(found[1]) << _POWERS[found[2].lower() or unit]


def settings_of_start(configuration: Configuration, command: SparkCommand, master: str) -> dict[str, str]:
    """The settings of Spark that follow from the keys ``taskmanager.*``, for a JVM that is about to be started; the
    areas of memory are logged, as Flink prints them.

    Args:
        command: what is known of the start, with the program's own settings.
        master: the URL of Spark's master.

    Raises:
        ConfigurationError: sizes contradict each other, or settings of Spark, or are above the machine's memory.
    """
    one_jvm, settings = ONE_JVM.fullmatch(master) is not None, dict[str, str]()
    if configuration.contains(cluster.NUMBER_OF_TASK_SLOTS) and not one_jvm and _chosen(command, CORES) is None:
        cpus = int(_chosen(command, CPUS) or 1)
        settings[CORES] = str(configuration.get(cluster.NUMBER_OF_TASK_SLOTS) * cpus)
    areas = areas_of(configuration)
    if areas is None:
        return settings
    if areas.heap < _LEAST_HEAP:
        raise ConfigurationError(
            f"the heap of the JVM is {size_text(areas.heap)} by the sizes of taskmanager.memory",
            where=f"configuration key '{memory.TASK_HEAP_SIZE.key}'",
            expected=f"at least {short_text(_LEAST_HEAP)}, with which Spark starts",
            hint=f"raise {memory.PROCESS_SIZE.key}, or lower {memory.MANAGED_FRACTION.key}",
        )
    if master.startswith("local") and areas.process > (most := memory_of_machine()):
        raise ConfigurationError(
            f"a TaskManager is to have {size_text(areas.process)}, and this machine has {size_text(most)}",
            where=f"configuration key '{memory.PROCESS_SIZE.key}'",
            expected="a size below the memory of the machine, or of the container",
            hint=f"lower {memory.PROCESS_SIZE.key} (or {memory.FLINK_SIZE.key})",
        )
    settings |= _of_memory(areas, command, one_jvm)
    for line in areas.lines():
        _LOG.info("%s", line)
    return settings


#: What Spark says of sizes with which it does not start.
_REFUSED = re.compile(
    r"Exception: (?:\[\w+_MEMORY\] )?((?:Asked to launch cluster with|(?:System|Executor) memory) [^\n]*)"
)


def refused_sizes(error: Exception) -> ConfigurationError | None:
    """The error for sizes of memory with which Spark does not start, whoever has set them; None: it has failed for
    another reason."""
    found = _REFUSED.search(str(error))
    return found and ConfigurationError(
        f"Spark does not start with these sizes of memory: {found[1]}",
        where=f"Spark's settings {DRIVER_HEAP} and {EXECUTOR_HEAP}, and the URL of the master",
        expected="450 MiB or more, and in local-cluster[workers,cores,MiB] no less than an executor has (1,024 MiB)",
        hint=f"raise the size that is too small, or lower {EXECUTOR_HEAP}",
    )


def _chosen(command: SparkCommand, key: str) -> str | None:
    return command.chosen(key, _OPTIONS.get(key, ""))


def _of_memory(areas: Areas, command: SparkCommand, one_jvm: bool) -> dict[str, str]:
    heap = areas.heap // _MIB
    settings = {DRIVER_HEAP if one_jvm else EXECUTOR_HEAP: f"{heap}m"}
    if not one_jvm:
        off_heap = _chosen(command, OFF_HEAP) if (_chosen(command, USES_OFF_HEAP) or "").lower() == "true" else None
        apart = {PYTHON: spark_bytes(_chosen(command, PYTHON) or "0"), OFF_HEAP: spark_bytes(off_heap or "0", "b")}
        taken = {key: (size or 0) // _MIB for key, size in apart.items()}
        overhead = areas.process // _MIB - heap - sum(taken.values())
        if overhead <= 0:
            named = ", ".join(f"{key} {mib} MiB" for key, mib in taken.items() if mib)
            raise ConfigurationError(
                f"{named} is more than a TaskManager of {size_text(areas.process)} has beside its heap",
                where=f"configuration key '{memory.PROCESS_SIZE.key}'",
                expected="parts that fit into it",
                hint=f"leave Spark's setting out, or raise {memory.PROCESS_SIZE.key}",
            )
        settings[OVERHEAD] = f"{overhead}m"
    for key, value in settings.items():
        given = _chosen(command, key)
        if given is not None and spark_bytes(given) != spark_bytes(value):
            raise ConfigurationError(
                f"Spark's setting {key} is {given}, and the keys taskmanager.memory.* make it {value}",
                where=f"configuration key '{memory.PROCESS_SIZE.key}' and Spark's setting {key}",
                expected="one of both",
                hint=f"leave {key} out, or all keys taskmanager.memory.* but {memory.MANAGED_SIZE.key}",
            )
    return settings
