"""Slot sharing groups: operators of different groups never share a task.

Rule upheld here: the name of a group affects chaining. Its resources are shown in plans but have no effect, since Spark
assigns resources to executors, not to operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering

from flinkish.common.arguments import check_at_least, check_instance
from flinkish.common.no_effect import no_java_object
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError

__all__ = ["MemorySize", "SlotSharingGroup"]


_WHERE = "SlotSharingGroup.builder()"
_HINT = "leave all resources out: Spark gives them by executor"


@total_ordering
class MemorySize:
    """A number of bytes.

    >>> MemorySize.of_mebi_bytes(2).get_kibi_bytes()
    2048
    """

    def __init__(self, bytes_size: int) -> None:
        check_at_least(bytes_size, 0, "the size", "MemorySize", "MemorySize.of_mebi_bytes(n) counts megabytes", "bytes")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """A size in mebibytes (1024 * 1024 bytes)."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        return self._bytes

    def get_kibi_bytes(self) -> int:
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        return self._bytes >> 40

    def get_java_memory_size(self) -> object:
        """Raises ProgramError: there is no Java object."""
        no_java_object("get_java_memory_size()")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __lt__(self, other: MemorySize) -> bool:
        if not isinstance(other, MemorySize):
            raise ArgumentTypeError(
                f"a MemorySize cannot be compared with {other!r}",
                where="MemorySize",
                expected="another MemorySize",
                hint="compare get_bytes() with numbers",
            )
        return self._bytes < other._bytes

    def __str__(self) -> str:
        return f"{self._bytes} bytes"

    def __repr__(self) -> str:
        return f"MemorySize({self._bytes})"


@dataclass(frozen=True)
class SlotSharingGroup:
    """The name of a slot sharing group, and the resources that one slot of it should have. The resources have no
    effect; plans show them.

    Example::

        group = SlotSharingGroup.builder("io").set_cpu_cores(1.0).set_task_heap_memory_mb(100).build()
        env.register_slot_sharing_group(group)
        ds.map(f).slot_sharing_group("io")
    """

    _name: str
    _cpu_cores: float | None = None
    _task_heap_memory: MemorySize | None = None
    _task_off_heap_memory: MemorySize | None = None
    _managed_memory: MemorySize | None = None
    _external_resources: tuple[tuple[str, float], ...] = ()

    def get_name(self) -> str:
        return self._name

    def get_managed_memory(self) -> MemorySize | None:
        return self._managed_memory

    def get_task_heap_memory(self) -> MemorySize | None:
        return self._task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        return self._task_off_heap_memory

    def get_cpu_cores(self) -> float | None:
        return self._cpu_cores

    def get_external_resources(self) -> dict[str, float]:
        return dict(self._external_resources)

    def get_java_slot_sharing_group(self) -> object:
        """Raises ProgramError: there is no Java object."""
        no_java_object("get_java_slot_sharing_group()")

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """A builder of the group with this name."""
        return SlotSharingGroup.Builder(name)

    def _resources(self) -> str:
        """The resources in one line, as plans show them; empty if there are none."""
        named = {
            "cpu cores": self._cpu_cores,
            "task heap": self._task_heap_memory,
            "task off-heap": self._task_off_heap_memory,
            "managed": self._managed_memory,
            **dict(self._external_resources),
        }
        return ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)

    class Builder:
        """Builds a SlotSharingGroup; `SlotSharingGroup.builder` makes one."""

        def __init__(self, name: str) -> None:
            check_instance(name or None, str, "the name of the group is", _WHERE, "choose one", "a non-empty str")
            self._settings = _Settings(name)

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            if not cpu_cores > 0:
                raise ArgumentValueError(
                    f"{cpu_cores} CPU cores of a slot sharing group", where=_WHERE, expected="more than 0", hint=_HINT
                )
            self._settings.cpu_cores = float(cpu_cores)
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            if task_heap_memory.get_bytes() == 0:
                raise ArgumentValueError(
                    "no task heap memory of a slot sharing group",
                    where=_WHERE,
                    expected="more than 0 bytes",
                    hint=_HINT,
                )
            self._settings.task_heap_memory = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            self._settings.task_off_heap_memory = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            self._settings.managed_memory = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            self._settings.external_resources[name] = float(value)
            return self

        def build(self) -> SlotSharingGroup:
            """The group. Raises ProgramError if it has resources, but not both CPU cores and task heap memory."""
            settings = self._settings
            required = (settings.cpu_cores, settings.task_heap_memory)
            others = (settings.task_off_heap_memory, settings.managed_memory, settings.external_resources or None)
            if None in required and any(given is not None for given in (*required, *others)):
                raise ProgramError(
                    "the resources of a slot sharing group are not complete",
                    where=f"slot sharing group '{settings.name}'",
                    expected="CPU cores and task heap memory, or no resources at all",
                    hint="call set_cpu_cores(...) and set_task_heap_memory(...)",
                )
            return SlotSharingGroup(
                settings.name,
                settings.cpu_cores,
                settings.task_heap_memory,
                settings.task_off_heap_memory,
                settings.managed_memory,
                tuple(settings.external_resources.items()),
            )


@dataclass
class _Settings:
    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict)
