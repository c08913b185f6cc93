"""What the operating system says of the process of a task: its memory, and the executor that it belongs to.

Rule: all of it is read from ``/proc`` and from the counters of JVMs. Where there is nothing of the kind, nothing is
known, and nothing is said.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from flinkish.common.memory import memory_of_machine

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

#: Least time between two looks at the figures of this process, in seconds.
LOOK_S = 1.0

#: How many ancestors of a worker are looked at: daemon, JVM, and what a cluster manager may put in between.
_MAX_ANCESTORS = 8
#: The options of an executor's JVM that name the executor, and the number of its cores.
_ID, _CORES = "--executor-id", "--cores"


class ExecutorProcess(NamedTuple):
    """The JVM of an executor of Spark."""

    pid: int
    #: the arguments with which it was started
    command: tuple[str, ...]

    def option(self, name: str) -> str | None:
        """The argument behind this one; None: there is none."""
        if name not in self.command[:-1]:
            return None
        return self.command[self.command.index(name) + 1]

    @property
    def id(self) -> str | None:
        """Spark's id of the executor."""
        return self.option(_ID)

    @property
    def cores(self) -> int | None:
        """The number of its cores."""
        text = self.option(_CORES)
        return int(text) if text is not None and text.isdecimal() else None


@cache
def executor_of(pid: int) -> ExecutorProcess | None:
    """The executor among the ancestors of a process; None: there is none, or ``/proc`` does not say it."""
    for _ in range(_MAX_ANCESTORS):
        parent = _parent(pid)
        if parent is None or parent <= 1:
            break
        found = ExecutorProcess(parent, _command_line(parent))
        if found.id is not None:
            return found
        pid = parent
    return None


def status_of(pid: int) -> list[str] | None:
    """The fields of a process behind its name, from its state ("Z": a zombie) on, as proc(5) lists them; None: there is
    no such process, or no ``/proc``."""
    try:
        # the name of the command, in parentheses, may contain any characters
        return Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def has_ended(pid: int) -> bool:
    """Whether this machine knows that there is no such process any more; never where it has no ``/proc``."""
    fields = status_of(pid)
    return fields[0] == "Z" if fields is not None else os.path.exists("/proc/self/stat")


def _parent(pid: int) -> int | None:
    fields = status_of(pid)
    return None if fields is None else int(fields[1])


def _command_line(pid: int) -> tuple[str, ...]:
    try:
        return tuple(part.decode(errors="replace") for part in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    except OSError:
        return ()


def resident_bytes(pid: int) -> int | None:
    """The memory that a process holds (its resident set); None: it is not known."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def _limit() -> dict[str, int]:
    """The limit of this process's address space (``spark.executor.pyspark.memory`` sets it), and the size of that;
    empty if it has none."""
    if resource is None:
        return {}
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return {}
    try:
        with open("/proc/self/statm", "rb") as file:
            return {"limit": limit, "virtual": int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")}
    except (OSError, IndexError, ValueError):
        return {}


#: Where HotSpot leaves the counters of a user that ``jstat`` reads, unless it is told not to (``-XX:-UsePerfData``).
COUNTERS = "/tmp/hsperfdata_{}"
_MAX_COUNTERS, _LEAST_ENTRY = 1 << 20, 20
_USED_AND_COMMITTED = {"used": "used", "capacity": "committed"}


def jvm_memory(pid: int) -> dict[str, int]:
    """The memory of a JVM of this machine, in bytes: ``heap_used`` and ``heap_committed``, ``metaspace_used`` and
    ``metaspace_committed``, as its garbage collector has counted them last; empty if they are not known.

    >>> jvm_memory(2**30)
    {}
    """
    found: dict[str, int] = {}
    try:
        data = _counters(pid)
        order = "<" if data[4] == 1 else ">"
        entry, count = struct.unpack_from(f"{order}ii", data, 24)
        for _ in range(count):
            length, name_at, _, kind, _, _, _, value_at = struct.unpack_from(f"{order}iiicbbbi", data, entry)
            if length < _LEAST_ENTRY:
                return {}
            name = data[entry + name_at : data.index(0, entry + name_at)].decode()
            of, _, figure = name.rpartition(".")
            if kind == b"J" and figure in _USED_AND_COMMITTED and of.startswith("sun.gc."):
                area = "metaspace" if of == "sun.gc.metaspace" else "heap" if ".space." in of else ""
                if area:
                    key = f"{area}_{_USED_AND_COMMITTED[figure]}"
                    found[key] = found.get(key, 0) + struct.unpack_from(f"{order}q", data, entry + value_at)[0]
            entry += length
    except (OSError, LookupError, ValueError, ImportError, AttributeError, struct.error):
        return {}
    return found


def _counters(pid: int) -> bytes:
    """The counters of a JVM of this user, in a folder of this user: nobody else chooses what is read."""
    import pwd  # not on Windows

    user, flags = os.geteuid(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    folder = COUNTERS.format(pwd.getpwuid(user).pw_name)
    around = os.lstat(folder)
    with open(os.open(f"{folder}/{pid}", flags), "rb") as opened:
        found = os.fstat(opened.fileno())
        of_kind = stat.S_ISDIR(around.st_mode) and stat.S_ISREG(found.st_mode) and found.st_size <= _MAX_COUNTERS
        return opened.read(_MAX_COUNTERS) if of_kind and around.st_uid == found.st_uid == user else b""


_looked_s: float | None = None


def new_figures() -> dict[str, int]:
    """What is known of this process, and of the JVM of its executor if it has one; empty if it was asked for within
    the last second, and where nothing is known. All sizes are in bytes.

    ``rss``: what this process holds; ``physical``: the memory of its machine; ``limit``, ``virtual``: the limit of its
    address space, if it has one, and the size of that; ``jvm``: the process id of the executor, ``jvm_rss``: what that
    holds, with the figures of `jvm_memory`; ``cores``: those of the executor.
    """
    global _looked_s
    now_s = time.monotonic()
    if _looked_s is not None and now_s - _looked_s < LOOK_S:
        return {}
    _looked_s = now_s
    pid = os.getpid()
    executor = executor_of(pid)
    found: dict[str, int | None] = {"rss": resident_bytes(pid), "physical": memory_of_machine()}
    if executor is not None:
        found |= {"jvm": executor.pid, "jvm_rss": resident_bytes(executor.pid), "cores": executor.cores}
        found |= jvm_memory(executor.pid)
    return {name: value for name, value in found.items() if value is not None} | _limit()
