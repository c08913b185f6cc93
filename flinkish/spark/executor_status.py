"""Which executors there are and have been: as Spark's driver knows it, or as the reports of tasks tell it.

Rule: nothing is asked of an executor, so that a look is cheap and never waits for one. Times are by the driver's clock.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from flinkish.launch.spark_command import ONE_JVM
from flinkish.runtime.job.report import TaskPlace
from flinkish.spark.place import DRIVER

if TYPE_CHECKING:
    from flinkish.spark.executor_access import ExecutorAccess


@dataclass(frozen=True, kw_only=True)
class ExecutorStatus:
    """An executor. None: it is not known; all sizes are in bytes."""

    executor: str
    host: str
    address: str = ""
    #: when it has come, and when it was heard of last
    added_ms: int
    heard_ms: int
    cores: int | None = None
    slots: int | None = None
    running_tasks: int | None = None
    #: whether its tasks run in this process or below it
    in_driver: bool = False
    #: whether it is there; otherwise when it has gone, and why, in Spark's words
    active: bool = True
    removed_ms: int | None = None
    reason: str = ""
    #: names as `MemoryFigures` of the job's description has them
    memory: Mapping[str, int] = field(default_factory=dict)
    #: name of a garbage collector -> how often it has run, and for how many ms
    collectors: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Executors(Protocol):
    """Tells which executors there are."""

    def look(self, now_ms: int) -> list[ExecutorStatus]:
        """Those that are there, and those that have gone, as far as it is remembered. May raise any exception if Spark
        cannot be asked."""

    def reach(self, executor: str, host: str) -> ExecutorAccess | None:
        """An executor, to be asked for what it does not report; None: it cannot be asked."""


#: What Spark gives as its metrics -> our name; all of them are the most since the executor has begun.
_PEAKS = {
    "JVMHeapMemory": "heap_peak",
    "JVMOffHeapMemory": "non_heap_peak",
    "DirectPoolMemory": "direct_peak",
    "MappedPoolMemory": "mapped_peak",
}
#: Name of a garbage collector -> Spark's metrics of it, which only grow.
_COLLECTORS = {
    "young": ("MinorGCCount", "MinorGCTime"),
    "old": ("MajorGCCount", "MajorGCTime"),
    "concurrent": ("ConcurrentGCCount", "ConcurrentGCTime"),
}
_SEEN = re.compile(r"(?<![\w.-])([\w.-]{1,100}) -> (\d{1,19})")
_USAGE = re.compile(r"\b(used|committed|max) = (\d{1,19})\(")


class StatusStore:
    """The executors of a session as the listeners of Spark's driver know them, with its UI or without."""

    #: Least time between two looks, in seconds: the jobs of a session share them.
    FRESH_S: ClassVar[float] = 0.5

    _shared: ClassVar[dict[str, StatusStore]] = {}
    _sharing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        context = spark.sparkContext
        jvm, self._context = context._jvm, context._jsc.sc()
        self._store = self._context.statusStore()
        # Spark's own serializer: a look is two calls, however many executors there are
        self._mapper = jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        self._heap = None
        if ONE_JVM.fullmatch(str(context.master)) is not None:
            # the one executor is in the JVM of the driver
            self._heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
        self._heap_max = int(self._context.executorMemory()) << 20
        #: of Spark's HeartbeatReceiver: executor -> when its last heartbeat has come; None: it was not looked for yet
        self._last_seen: Any = None
        self._lock = threading.Lock()
        self._looked_s = -self.FRESH_S
        self._found: list[ExecutorStatus] = []

    @classmethod
    def of(cls, spark: Any) -> StatusStore:
        """That of the session's application, one for all jobs."""
        application = str(spark.sparkContext.applicationId)
        with cls._sharing:
            if application not in cls._shared:
                cls._shared.clear()
                cls._shared[application] = cls(spark)
            return cls._shared[application]

    def look(self, now_ms: int) -> list[ExecutorStatus]:
        """All that Spark remembers."""
        with self._lock:
            if time.monotonic() - self._looked_s >= self.FRESH_S:
                text = self._mapper.writeValueAsString(self._store.executorList(False))
                heard = self._heartbeats()
                found = [self._status(one, now_ms, heard) for one in json.loads(text)]
                # the driver of a cluster is no executor
                self._found = [one for one in found if one.executor != DRIVER or one.cores]
                self._looked_s = time.monotonic()
            return self._found

    def _heartbeats(self) -> dict[str, int]:
        """Executor -> when its last heartbeat has come, which Spark's store does not have; empty if the internals of
        Spark are other ones."""
        with suppress(Exception):
            if self._last_seen is None:
                refs = _field(_field(self._context.env().rpcEnv(), "dispatcher"), "endpointRefs")
                found = {one.getClass().getSimpleName(): one for one in refs.keySet().toArray()}
                self._last_seen = _field(found["HeartbeatReceiver"], "executorLastSeen")
            return {name: int(ms) for name, ms in _SEEN.findall(str(self._last_seen.toString()))}
        return {}

    def reach(self, executor: str, host: str) -> ExecutorAccess:
        """An executor, to be asked."""
        from flinkish.spark.executor_access import ExecutorAccess

        return ExecutorAccess(self._spark, executor, host)

    def _status(self, one: Mapping[str, Any], now_ms: int, heard: Mapping[str, int]) -> ExecutorStatus:
        # that of a local master is this JVM, which has just answered
        heard_ms = now_ms if one["id"] == DRIVER else heard.get(str(one["id"]), _time_ms(one["addTime"]))
        removed, active = one.get("removeTime"), bool(one["isActive"])
        removed_ms = None if removed is None else _time_ms(removed)
        peaks = one.get("peakMemoryMetrics") or {}
        memory = {name: int(peaks[key]) for key, name in _PEAKS.items() if peaks.get(key)}
        if one["id"] == DRIVER and self._heap is not None:
            # a limit that there is not is -1
            usage = dict(_USAGE.findall(str(self._heap.getHeapMemoryUsage().toString())))
            memory |= {f"heap_{name}": int(usage[name]) for name in ("used", "committed", "max") if name in usage}
        else:
            memory["heap_max"] = self._heap_max
        return ExecutorStatus(
            executor=str(one["id"]),
            host=str(one["hostPort"]).rpartition(":")[0].strip("[]") or str(one["hostPort"]),
            address=str(one["hostPort"]),
            added_ms=_time_ms(one["addTime"]),
            heard_ms=heard_ms,
            cores=one.get("totalCores"),
            slots=one.get("maxTasks"),
            running_tasks=one.get("activeTasks") if active else 0,
            in_driver=one["id"] == DRIVER,
            active=active,
            removed_ms=removed_ms,
            reason=str(one.get("removeReason") or ""),
            memory=memory,
            collectors={
                name: (int(peaks[count]), int(peaks[took]))
                for name, (count, took) in _COLLECTORS.items()
                if peaks.get(count)
            },
        )


def _field(of: Any, name: str) -> Any:
    """The value of a private field of an object of Spark; Scala may put the name of the class before that of the
    field."""
    field = next(one for one in of.getClass().getDeclaredFields() if one.getName().split("$")[-1] == name)
    field.setAccessible(True)
    return field.get(of)


def status_store(spark: Any) -> Executors | None:
    """That of a session; None under Spark Connect, and where a platform hides the JVM: then reports say it all."""
    from flinkish.spark.session import is_remote

    if is_remote(spark):
        return None
    with suppress(Exception):
        return StatusStore.of(spark)
    return None


def _time_ms(text: str) -> int:
    """A time as Spark's API writes it.

    >>> _time_ms("2026-11-27T17:41:20.640GMT")
    1795801280640
    """
    return round(datetime.fromisoformat(text.replace("GMT", "+00:00")).timestamp() * 1000)


#: The figures of `new_figures` that are of the executor's memory.
_REPORTED = ("physical", "jvm_rss", "heap_used", "heap_committed", "metaspace_used", "metaspace_committed")


class ReportedExecutors:
    """The executors that tasks report: all that is known under Spark Connect and in the minicluster, where nobody else
    can be asked.

    One from which nothing has come for longer than from others, and for longer than the timeout, has gone: one that is
    idle with all others is still there.

    Args:
        timeout_ms: as ``heartbeat.timeout`` of Flink.
        here: the executor that is there before any report, and stays; None: there is none.
    """

    def __init__(self, timeout_ms: int = 50_000, here: ExecutorStatus | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._here = None if here is None else here.executor
        #: those of which no word is expected in the running epoch: their tasks are done
        self.done: set[str] = set()
        self._known: dict[str, ExecutorStatus] = {} if here is None else {here.executor: here}
        #: executor -> the process ids of its JVMs, each with the time at which it was heard of
        self._jvms: dict[str, dict[int, int]] = {}

    def heard(self, place: TaskPlace, figures: Mapping[str, int], now_ms: int) -> None:
        """A task has reported from there; ``figures`` are those of `new_figures`. If two executors go by one name,
        their cores and memory are left out."""
        with self._lock:
            known = self._known.get(place.executor)
            if known is None or not known.active:
                known = ExecutorStatus(executor=place.executor, host=place.host, added_ms=now_ms, heard_ms=now_ms)
            known = replace(known, heard_ms=now_ms)
            if figures:
                jvms = self._jvms.setdefault(place.executor, {})
                if "jvm" in figures:
                    jvms[figures["jvm"]] = now_ms
                for jvm in [jvm for jvm, heard_ms in jvms.items() if now_ms - heard_ms > self._timeout_ms]:
                    del jvms[jvm]
                cores = figures.get("cores", known.cores)
                memory = {name: figures[name] for name in _REPORTED if name in figures}
                known = replace(known, cores=cores, slots=cores, memory={**known.memory, **memory})
                if len(jvms) > 1:
                    known = replace(known, cores=None, slots=None, memory={})
            self._known[place.executor] = known

    def reach(self, executor: str, host: str) -> None:
        """Nobody but its tasks speaks for an executor."""

    def reported(self, executor: str) -> ExecutorStatus | None:
        """What its tasks have reported of it."""
        with self._lock:
            return self._known.get(executor)

    def look(self, now_ms: int) -> list[ExecutorStatus]:
        """All that were reported since this driver runs the job."""
        with self._lock:
            newest_ms = max((one.heard_ms for one in self._known.values()), default=now_ms)
            for name, one in self._known.items():
                if name == self._here:
                    self._known[name] = replace(one, heard_ms=now_ms)
                elif one.active and name not in self.done and newest_ms - one.heard_ms > self._timeout_ms:
                    reason = f"no task has reported from it for {(newest_ms - one.heard_ms) // 1000} s, but from others"
                    self._known[name] = replace(one, active=False, removed_ms=now_ms, reason=reason)
            return list(self._known.values())


#: What Spark says of an executor that it has ended itself, as dynamic allocation does.
_ENDED_BY_SPARK = "killed by driver"

#: What Spark, YARN and Kubernetes say -> what it means, in our words; the first that fits counts. Spark's code for an
#: OutOfMemoryError is 52.
_MEANINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"heartbeat timed out|no recent heartbeats", re.I),
        "its heartbeats did not come: it hangs, collects garbage for long, or its host or network is away",
    ),
    (
        re.compile(r"\bcode 52\b|OutOfMemoryError", re.I),
        "its JVM had no heap left: raise taskmanager.memory.task.heap.size (or process.size), or spark.executor.memory",
    ),
    (
        re.compile(r"OOMKilled|\bOOM\b|exceeding (physical |virtual )?memory|memory limits?", re.I),
        "it was killed for memory: its JVM and its Python processes together held more than its container may: raise "
        "taskmanager.memory.process.size, or spark.executor.memoryOverhead",
    ),
    (
        re.compile(r"\b(?:code|status):? 137\b|SIGKILL", re.I),
        "it was killed by SIGKILL: by hand, or by its machine for want of memory (then raise "
        "taskmanager.memory.process.size, or spark.executor.memoryOverhead, or have fewer slots per executor)",
    ),
    (re.compile(r"\bcode 143\b|SIGTERM", re.I), "it was ended by SIGTERM"),
    (re.compile(r"\bworker lost\b", re.I), "the machine that it ran on was lost"),
)


def was_released(reason: str) -> bool:
    """Whether Spark has ended an executor itself that it gives this reason for."""
    return _ENDED_BY_SPARK in reason


def meaning_of(reason: str) -> str:
    """What Spark's reason for the loss of an executor means; "": nothing more than it says.

    >>> meaning_of("Command exited with code 143"), meaning_of("Executor decommission: Executor 1 is decommissioned.")
    ('it was ended by SIGTERM', '')
    """
    return next((meaning for pattern, meaning in _MEANINGS if pattern.search(reason)), "")
