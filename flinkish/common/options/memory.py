"""The memory of a TaskManager: keys that begin with ``taskmanager.memory.``."""

from __future__ import annotations

from flinkish.common.config_options import ConfigOption, ConfigOptions

_MIB = 1 << 20


def _size(key: str, description: str) -> ConfigOption[int | None]:
    found = ConfigOptions.key(f"taskmanager.memory.{key}").memory_type().no_default_value()
    return found.with_description(description)


def _default(key: str, mib: int, description: str) -> ConfigOption[int]:
    found = ConfigOptions.key(f"taskmanager.memory.{key}").memory_type().default_value(mib * _MIB)
    return found.with_description(description)


def _fraction(key: str, fraction: float, description: str) -> ConfigOption[float]:
    found = ConfigOptions.key(f"taskmanager.memory.{key}").float_type().default_value(fraction)
    return found.with_description(description)


PROCESS_SIZE = _size(
    "process.size",
    "Memory of a whole TaskManager, an executor with its Python workers: the other areas follow from it by Flink's "
    "rules. What flinkish sets of Spark's memory then: docs/operations.md. Only where flinkish starts Spark.",
)
FLINK_SIZE = _size("flink.size", "The same without JVM metaspace and JVM overhead.")
FRAMEWORK_HEAP_SIZE = _default(
    "framework.heap.size", 128, "Heap of the JVM beside that of tasks; with it the heap of the executor."
)
FRAMEWORK_OFF_HEAP_SIZE = _default(
    "framework.off-heap.size", 128, "Memory off the heap, beside that of tasks; a part of Spark's memory overhead."
)
TASK_HEAP_SIZE = _size(
    "task.heap.size",
    "Heap of the JVM for tasks: what is left of flink.size by default. With it the heap of the executor.",
)
TASK_OFF_HEAP_SIZE = _default(
    "task.off-heap.size",
    0,
    "Memory off the heap for tasks: what user functions and their libraries take in the Python workers, besides the "
    "state (managed memory); a part of Spark's memory overhead.",
)
MANAGED_SIZE = _size(
    "managed.size",
    "About what the state may take that the Python workers of a TaskManager keep in memory, each worker the part of "
    "its slot; the rest is read from files when it is used. By default managed.fraction of flink.size, and 512 MiB "
    "for each worker if no size of a TaskManager is set.",
)
MANAGED_FRACTION = _fraction("managed.fraction", 0.4, "Managed memory as a part of flink.size, if it has no size.")
NETWORK_MIN = _default("network.min", 64, "Least network memory.")
NETWORK_MAX = _size("network.max", "Most network memory. Default: without limit.")
NETWORK_FRACTION = _fraction(
    "network.fraction", 0.1, "Network memory as a part of flink.size; here of what Spark's shuffles take off the heap."
)
JVM_METASPACE_SIZE = _default("jvm-metaspace.size", 256, "Metaspace of the JVM; counted, and not enforced.")
JVM_OVERHEAD_MIN = _default("jvm-overhead.min", 192, "Least JVM overhead.")
JVM_OVERHEAD_MAX = _default("jvm-overhead.max", 1024, "Most JVM overhead.")
JVM_OVERHEAD_FRACTION = _fraction("jvm-overhead.fraction", 0.1, "JVM overhead as a part of process.size.")
