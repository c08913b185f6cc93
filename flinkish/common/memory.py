"""The memory of a TaskManager and its areas, by Flink's rules, and the sizes of memory in words.

Rule: at least one of three must be set, process.size, flink.size, or task.heap.size together with managed.size, and
the rest is derived. Network memory and JVM overhead are fractions within a minimum and a maximum; where all others are
given, they are the rest, which then must lie within the two. Fractions are numbers of 32 bits, as in Flink, so that
the sizes are Flink's to the byte.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from flinkish.common.config_options import ConfigOption
from flinkish.common.configuration import Configuration
from flinkish.common.options import memory
from flinkish.errors import ConfigurationError

_UNITS = (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10))

_TOTALS = "taskmanager.memory.process.size, taskmanager.memory.flink.size, or task.heap.size and managed.size"


@dataclass(frozen=True)
class Areas:
    """The areas of the memory of a TaskManager, in bytes."""

    framework_heap: int
    task_heap: int
    framework_off_heap: int
    task_off_heap: int
    network: int
    managed: int
    jvm_metaspace: int
    jvm_overhead: int

    @property
    def heap(self) -> int:
        """The heap of the JVM."""
        return self.framework_heap + self.task_heap

    @property
    def direct(self) -> int:
        """What lies off the heap and is not managed."""
        return self.framework_off_heap + self.task_off_heap + self.network

    @property
    def flink(self) -> int:
        """Flink's total: all but what the JVM takes for itself."""
        return self.heap + self.direct + self.managed

    @property
    def process(self) -> int:
        """All of it."""
        return self.flink + self.jvm_metaspace + self.jvm_overhead

    @property
    def python(self) -> int:
        """What the Python workers may take: state, and what user functions hold."""
        return self.managed + self.task_off_heap

    def configured(self) -> MemoryConfiguration:
        """What a TaskManager has that was started with these areas."""
        origin = MemoryConfiguration.OF_FLINK
        totals = {"flink": self.flink, "process": self.process, "python": self.python}
        return MemoryConfiguration(**vars(self), **totals, origin=origin)

    def lines(self) -> list[str]:
        """The areas as Flink prints them when a TaskManager starts."""
        rows = (
            ("  Total Process Memory:", self.process),
            ("    Total Flink Memory:", self.flink),
            ("      Total JVM Heap Memory:", self.heap),
            ("        Framework:", self.framework_heap),
            ("        Task:", self.task_heap),
            ("      Total Off-heap Memory:", self.managed + self.direct),
            ("        Managed:", self.managed),
            ("        Total JVM Direct Memory:", self.direct),
            ("          Framework:", self.framework_off_heap),
            ("          Task:", self.task_off_heap),
            ("          Network:", self.network),
            ("    JVM Metaspace:", self.jvm_metaspace),
            ("    JVM Overhead:", self.jvm_overhead),
        )
        return ["Final TaskExecutor Memory configuration:", *(f"{name:<33}{size_text(size)}" for name, size in rows)]


@dataclass(frozen=True, kw_only=True)
class MemoryConfiguration:
    """What a TaskManager has of each area, in bytes; None: it is not known, or there is no limit."""

    framework_heap: int | None = None
    task_heap: int | None = None
    framework_off_heap: int | None = None
    task_off_heap: int | None = None
    network: int | None = None
    managed: int | None = None
    jvm_metaspace: int | None = None
    jvm_overhead: int | None = None
    flink: int | None = None
    process: int | None = None
    #: what of it the Python workers may take
    python: int | None = None
    #: the settings from which all this follows, in words
    origin: str = ""

    #: The origin of what follows from the keys of Flink.
    OF_FLINK: ClassVar[str] = "taskmanager.memory.*"


def areas_of(configuration: Configuration) -> Areas | None:
    """The areas that follow from a configuration; None if it says nothing of the memory of a TaskManager but how much
    state is kept in memory.

    Raises:
        ConfigurationError: sizes contradict each other, or none of those is set from which others follow.
    """
    return _Rules(configuration).areas()


def size_text(size: int) -> str:
    """A size in Flink's words.

    >>> size_text(1811939328), size_text(0)
    ('1.688gb (1811939328 bytes)', '0 bytes')
    """
    for name, unit in _UNITS:
        if size > unit:
            return f"{size / unit:.3f}{name} ({size} bytes)"
    return f"{size} bytes"


def short_text(size: int) -> str:
    """A size in a few characters.

    >>> short_text(300 << 20), short_text(3 << 29)
    ('300 MiB', '1.5 GiB')
    """
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"


@cache
def memory_of_machine() -> int:
    """The memory of the machine, or of the container if it has less."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            sizes.append(int(Path(file).read_text()))
    return min(sizes)


class _Fraction:
    """An area that is a fraction of another one, within a minimum and a maximum."""

    def __init__(
        self,
        configuration: Configuration,
        fraction: ConfigOption[float],
        least: ConfigOption[int],
        most: ConfigOption[Any],
    ) -> None:
        self._keys = tuple(option.key for option in (least, most))
        self._fraction = _checked_fraction(configuration, fraction)
        self._min = configuration.get(least)
        self._max: int | None = configuration.get(most)
        if self._max is not None and self._min > self._max:
            raise ConfigurationError(
                f"{least.key} ({size_text(self._min)}) is above {most.key} ({size_text(self._max)})",
                where=f"configuration keys '{least.key}' and '{most.key}'",
                expected="a minimum that is not above the maximum",
                hint="leave one of them out",
            )

    def of(self, whole: int) -> int:
        """The size of the area as a fraction of a whole that it is a part of."""
        return self._capped(_times(whole, self._fraction))

    def beside(self, rest: int) -> int:
        """The size of the area if all else of the whole has this size."""
        return self._capped(_times(rest, self._fraction / (1 - self._fraction)))

    def check(self, rest: int, name: str, whole: str) -> int:
        """The size of the area if it is all that is left of a whole. Raises ConfigurationError if it cannot be."""
        if self._min <= rest and (self._max is None or rest <= self._max):
            return rest
        most = "without limit" if self._max is None else size_text(self._max)
        least_key, most_key = self._keys
        raise ConfigurationError(
            f"what the other sizes leave of {whole} for {name} is {_signed(rest)}",
            where=f"configuration keys '{least_key}' and '{most_key}'",
            expected=f"a size from {size_text(self._min)} to {most}",
            hint=f"change {whole} or one of the sizes in it, or set neither of the totals beside them",
        )

    def _capped(self, size: int) -> int:
        size = max(size, self._min)
        return size if self._max is None else min(size, self._max)


class _Rules:
    """Flink's rules of derivation, for one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._get = configuration.get
        self._configuration = configuration
        self._process = configuration.get(memory.PROCESS_SIZE)
        self._flink = configuration.get(memory.FLINK_SIZE)
        self._task_heap = configuration.get(memory.TASK_HEAP_SIZE)
        self._managed = configuration.get(memory.MANAGED_SIZE)
        self._network = _Fraction(configuration, memory.NETWORK_FRACTION, memory.NETWORK_MIN, memory.NETWORK_MAX)
        self._overhead = _Fraction(
            configuration, memory.JVM_OVERHEAD_FRACTION, memory.JVM_OVERHEAD_MIN, memory.JVM_OVERHEAD_MAX
        )
        self._managed_fraction = _checked_fraction(configuration, memory.MANAGED_FRACTION)
        #: the areas that have a size of their own in any case
        self._fixed = {
            memory.FRAMEWORK_HEAP_SIZE.key: configuration.get(memory.FRAMEWORK_HEAP_SIZE),
            memory.FRAMEWORK_OFF_HEAP_SIZE.key: configuration.get(memory.FRAMEWORK_OFF_HEAP_SIZE),
            memory.TASK_OFF_HEAP_SIZE.key: configuration.get(memory.TASK_OFF_HEAP_SIZE),
        }

    def areas(self) -> Areas | None:
        """The areas; None if nothing is said of them."""
        metaspace = self._get(memory.JVM_METASPACE_SIZE)
        if self._task_heap is not None and self._managed is not None:
            task_heap, managed, network = self._of_sizes(self._task_heap, self._managed)
        elif self._flink is not None:
            task_heap, managed, network = self._of_total(self._flink)
        elif self._process is not None:
            overhead = self._overhead.of(self._process)
            parts = {memory.JVM_METASPACE_SIZE.key: metaspace, "jvm-overhead": overhead}
            flink = _left(memory.PROCESS_SIZE.key, self._process, parts)
            return self._made(*self._of_total(flink), metaspace, overhead)
        else:
            self._check_nothing_is_set()
            return None
        flink = sum(self._fixed.values()) + task_heap + managed + network
        if self._process is None:
            overhead = self._overhead.beside(flink + metaspace)
        else:
            rest = self._process - flink - metaspace
            overhead = self._overhead.check(rest, "JVM overhead", memory.PROCESS_SIZE.key)
        return self._made(task_heap, managed, network, metaspace, overhead)

    def _of_sizes(self, task_heap: int, managed: int) -> tuple[int, int, int]:
        parts = {**self._fixed, memory.TASK_HEAP_SIZE.key: task_heap, memory.MANAGED_SIZE.key: managed}
        if self._flink is None:
            return task_heap, managed, self._network.beside(sum(parts.values()))
        rest = _left(memory.FLINK_SIZE.key, self._flink, parts)
        return task_heap, managed, self._network.check(rest, "network memory", memory.FLINK_SIZE.key)

    def _of_total(self, flink: int) -> tuple[int, int, int]:
        whole = memory.FLINK_SIZE.key if self._flink is not None else memory.PROCESS_SIZE.key
        managed = _times(flink, self._managed_fraction) if self._managed is None else self._managed
        parts = {**self._fixed, "managed" if self._managed is None else memory.MANAGED_SIZE.key: managed}
        if self._task_heap is not None:
            rest = _left(whole, flink, {**parts, memory.TASK_HEAP_SIZE.key: self._task_heap})
            return self._task_heap, managed, self._network.check(rest, "network memory", whole)
        network = self._network.of(flink)
        return _left(whole, flink, {**parts, "network": network}), managed, network

    def _made(self, task_heap: int, managed: int, network: int, metaspace: int, overhead: int) -> Areas:
        framework_heap, framework_off_heap, task_off_heap = self._fixed.values()
        return Areas(
            framework_heap, task_heap, framework_off_heap, task_off_heap, network, managed, metaspace, overhead
        )

    def _check_nothing_is_set(self) -> None:
        options = [value for value in vars(memory).values() if isinstance(value, ConfigOption)]
        found = [one.key for one in options if self._configuration.contains(one) and one is not memory.MANAGED_SIZE]
        if found:
            raise ConfigurationError(
                f"{found[0]} is set, and no size of a TaskManager from which the others follow",
                where=f"configuration key '{found[0]}'",
                expected=f"one of {_TOTALS}",
                hint=f"set {memory.PROCESS_SIZE.key}, or leave {found[0]} out: Spark's own settings hold then",
            )


def _left(whole_key: str, whole: int, parts: Mapping[str, int]) -> int:
    """What parts leave of a whole. Raises ConfigurationError if they are more than it."""
    rest = whole - sum(parts.values())
    if rest < 0:
        shown = ", ".join(
            f"{key.removeprefix('taskmanager.memory.')} {short_text(size)}" for key, size in parts.items()
        )
        raise ConfigurationError(
            f"the areas of memory ({shown}) are {size_text(-rest)} more than there is of {size_text(whole)}",
            where=f"configuration key '{whole_key}'",
            expected="areas that fit into it",
            hint=f"raise {whole_key}, or lower the largest of them",
        )
    return rest


def _checked_fraction(configuration: Configuration, option: ConfigOption[float]) -> float:
    given = configuration.get(option)
    value: float = struct.unpack("f", struct.pack("f", given))[0] if 0 <= given < 1 else 1.0
    if value == 1:
        raise ConfigurationError(
            f"{given} is no fraction",
            where=f"configuration key '{option.key}'",
            expected="a number from 0 to less than 1",
            hint=f"leave it out for {option.default}",
        )
    return value


def _times(size: int, factor: float) -> int:
    return int(Decimal(repr(factor)) * size)


def _signed(size: int) -> str:
    return size_text(size) if size >= 0 else f"{size_text(-size)} too little"
