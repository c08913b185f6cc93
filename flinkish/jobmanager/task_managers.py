"""The registry of the task managers of a job: which there are and were, what each of them runs and has run, and what
the driver is told when one comes or goes.

Rule: what comes and goes is seen within a heartbeat (`SHORTEST_S` to `LONGEST_S`), also while no epoch runs. The looks
take a thousandth of the time, however many executors there are, and an epoch costs no look.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache

from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError, escaped
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.task_managers import (
    LOST,
    REGISTERED,
    RELEASED,
    GarbageCollector,
    HeldTask,
    MemoryFigures,
    ReachableTaskManager,
    TaskManagerDescription,
    TaskManagerEvent,
    WorkerDescription,
    task_manager_id,
)
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import TaskPlace
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.runtime.process import has_ended
from flinkish.runtime.task.progress import EpochProgress, TaskProgress
from flinkish.spark.executor_status import (
    Executors,
    ExecutorStatus,
    ReportedExecutors,
    meaning_of,
    was_released,
)
from flinkish.spark.place import DRIVER

_LOG = logging.getLogger("flinkish.JobMaster")

#: Seconds between two looks: a thousand times what a look takes, within these bounds.
SHORTEST_S, LONGEST_S = 1.0, 10.0
#: A worker that has said nothing for so long (ms) may have ended: Spark ends those that run nothing for a minute.
_WORKER_MS = 60_000
#: The most that are kept: of task managers that have gone, of subtasks that one has held, of subtasks of a worker that
#: are named.
MAX_GONE, MAX_HELD, MAX_NAMED = 20, 32, 32

#: Why an executor has gone that Spark does not speak of any more.
_FORGOTTEN = "Spark does not know it any more and does not say why"


def this_process() -> ExecutorStatus:
    """The one task manager of a minicluster: this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    now_ms = SystemClock().now_ms()
    return ExecutorStatus(
        executor=DRIVER, host=socket.gethostname(), added_ms=now_ms, heard_ms=now_ms, cores=cores, in_driver=True
    )


def _id_of(one: ExecutorStatus) -> str:
    return task_manager_id(one.host, one.executor, socket.gethostname(), os.getpid())


class TaskManagers(JobObserver):
    """Knows the task managers of one job in one driver. Any thread may use it.

    Args:
        job: the job graph.
        notify: is called when a task manager has come or gone.
        store: who is asked for the executors; None: what tasks report is all that is known.
        reports: keeps what tasks report of their executors.
        clock: the driver's clock, of which all times are.
    """

    def __init__(
        self,
        job: JobDescriptor,
        notify: Callable[[TaskManagerEvent], None],
        store: Executors | None = None,
        reports: ReportedExecutors | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._job = job
        self._notify = notify
        self._reports = reports or ReportedExecutors()
        self._executors: Executors = store or self._reports
        self._clock = clock or SystemClock()
        self._lock, self._looking = threading.Lock(), threading.Lock()
        #: executor -> what was found at the last look; those that have gone are among them
        self._known: dict[str, ExecutorStatus] = {}
        self._looked = False
        #: (vertex, subtask) -> the executor and process that have run it last, and the epoch
        self._holders: dict[tuple[int, int], tuple[str, int, int]] = {}
        #: executor -> the subtasks that it has held, each with the last epoch
        self._held: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
        #: executor -> process id -> when it was reported last, its memory, and whether it is of this machine
        self._workers: dict[str, dict[int, tuple[int, int | None, bool]]] = defaultdict(dict)
        #: what tasks of the running epoch have said last
        self._told: dict[tuple[int, int], TaskProgress] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ what happens

    def attempt_started(self, attempt: int) -> None:
        """Look again and again from now on until the job has ended."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="flinkish-task-managers", daemon=True)
            self._thread.start()

    def epoch_done(self, report: EpochReport) -> None:
        """Note where the tasks of the epoch have run."""
        now_ms = self._clock.now_ms()
        with self._lock:
            self._reports.done, heard = set(), set[str]()
            for task in report.tasks:
                place = task.place or _here()
                if task.process or place.executor not in heard:
                    heard.add(place.executor)
                    self._reports.heard(place, task.process, now_ms)
                self._ran((task.vertex, task.subtask), place, report.epoch)
                self._works(place, now_ms, task.process.get("rss"))

    def epoch_running(self, progress: EpochProgress) -> None:
        """Tasks are at work: their executors and processes are there. What is told again as it was is no news."""
        now_ms = self._clock.now_ms()
        with self._lock:
            before, self._told = self._told, {(task.vertex, task.subtask): task for task in progress.tasks}
            at_work = {task.place.executor for task in progress.tasks if task.place is not None and not task.done}
            self._reports.done = {one.place.executor for one in progress.tasks if one.place is not None} - at_work
            for key, task in self._told.items():
                if task.place is not None and before.get(key) != task:
                    self._works(task.place, now_ms, None)
                    self._reports.heard(task.place, {}, now_ms)

    def _works(self, place: TaskPlace, now_ms: int, rss: int | None) -> None:
        """Note that a process is there, and its memory if it has said that."""
        workers = self._workers[place.executor]
        known = workers.get(place.pid, (0, None))[1] if rss is None else rss
        workers[place.pid] = (now_ms, known, place.host == _here().host)

    def task_failed(self, failure: FlinkishError) -> None:
        """Its process may have ended: none is known to be there before it reports again."""
        with self._lock:
            self._workers.clear()

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """The same; and look at once, since it may be for a lost executor."""
        self.task_failed(failure)
        self.look()

    def job_done(self, status: JobStatus) -> None:
        """Look for the last time."""
        self._ended.set()
        self.look()

    def _ran(self, task: tuple[int, int], place: TaskPlace, epoch: int) -> None:
        before = self._holders.get(task)
        self._holders[task] = (place.executor, place.pid, epoch)
        self._held[place.executor].pop(task, None)
        if before is not None and before[0] != place.executor:
            held = self._held[before[0]]
            held.pop(task, None)
            held[task] = before[2]
            while len(held) > MAX_HELD:
                del held[next(iter(held))]

    def _work(self) -> None:
        wait_s = 0.0
        while not self._ended.wait(wait_s):
            begun_s = time.monotonic()
            self.look()
            wait_s = min(max(1_000 * (time.monotonic() - begun_s), SHORTEST_S), LONGEST_S)

    def look(self) -> None:
        """Find what has come and gone since the last look. If Spark cannot be asked, nothing has."""
        now_ms = self._clock.now_ms()
        with self._looking:
            try:
                # nobody waits for this who only wants to add or know something
                found = {one.executor: one for one in self._executors.look(now_ms)}
            except Exception:
                _LOG.debug("job '%s': Spark cannot be asked for its executors", self._job.name, exc_info=True)
                return
            with self._lock:
                events = list(self._changes(found, now_ms))
                self._forget(now_ms)
        for event in events:
            with suppress(Exception):
                self._notify(event)

    def _changes(self, found: dict[str, ExecutorStatus], now_ms: int) -> Iterator[TaskManagerEvent]:
        first, self._looked = not self._looked, True
        for name, known in self._known.items():
            if name not in found and known.active:
                found[name] = replace(known, active=False, removed_ms=now_ms, reason=_FORGOTTEN)
        for known in self._last_gone():
            found.setdefault(known.executor, known)
        before, self._known = self._known, found
        for name, one in found.items():
            known_one = before.get(name)
            if one.in_driver or (not one.active and first):
                # the driver itself neither comes nor goes; what was over before the job began is not of the job
                continue
            if known_one is None and not one.active:
                # it has come and gone since the last look
                yield self._event(replace(one, active=True, removed_ms=None, reason=""), "", one.added_ms)
            was_there = known_one is not None and known_one.active
            if one.active != was_there or known_one is None:
                yield self._event(one, "" if one.active else REGISTERED, now_ms if one.active else one.removed_ms)

    def _event(self, one: ExecutorStatus, before: str, time_ms: int | None) -> TaskManagerEvent:
        manager = self._describe(one, Counter(executor for executor, _, _ in self._holders.values()))
        if one.active:
            slots = "" if manager.slots is None else f", with {manager.slots} slot{'s'[: manager.slots != 1]}"
            cause = f"it has come to {manager.host}{slots}"
        else:
            # none, if they have run elsewhere since
            held = f"; it held {manager.holds} subtask{'s'[: manager.holds != 1]}" if manager.holds else ""
            cause = f"{manager.reason}{held}"
        return TaskManagerEvent(manager, time_ms or self._clock.now_ms(), before, cause)

    def _last_gone(self) -> list[ExecutorStatus]:
        gone = [one for one in self._known.values() if not one.active]
        return sorted(gone, key=lambda one: one.removed_ms or 0)[-MAX_GONE:]

    def _forget(self, now_ms: int) -> None:
        kept = {one.executor for one in self._last_gone()}
        kept |= {one.executor for one in self._known.values() if one.active}
        for name in self._held.keys() - kept:
            del self._held[name]
        for name in self._workers.keys() - kept:
            del self._workers[name]
        for executor in self._workers.keys() & self._known.keys():
            self._workers[executor] = self._alive(self._known[executor], now_ms)

    def _alive(self, one: ExecutorStatus, now_ms: int) -> dict[int, tuple[int, int | None, bool]]:
        """The Python processes of an executor of which it is known that they are there: they have said something within
        the last minute, and if they are of this machine, it has not seen them end."""
        return {
            pid: (reported_ms, rss, here)
            for pid, (reported_ms, rss, here) in (self._workers.get(one.executor, {}) if one.active else {}).items()
            if pid == os.getpid() or (now_ms - reported_ms <= _WORKER_MS and not (here and has_ended(pid)))
        }

    # ------------------------------------------------------------------ what can be asked

    def describe(self) -> tuple[TaskManagerDescription, ...]:
        """Those that are there in the order in which they have come, then the last ones that have gone."""
        with self._lock:
            holds = Counter(executor for executor, _, _ in self._holders.values())
            there = sorted((one for one in self._known.values() if one.active), key=lambda one: one.added_ms)
            gone = self._last_gone()
            tasks = self._tasks_of_workers()
            return tuple(self._describe(one, holds, tasks) for one in (*there, *gone))

    def reach(self, name: str) -> ReachableTaskManager | None:
        """The task manager with this id, to be asked for more than it reports; None: it is none that can be asked."""
        with self._lock:
            for one in self._known.values():
                if one.active and not one.in_driver and _id_of(one) == name:
                    return self._executors.reach(one.executor, one.host)
        return None

    def _tasks_of_workers(self) -> dict[tuple[str, int], list[str]]:
        found: dict[tuple[str, int], list[str]] = {}
        for (vertex, subtask), (executor, pid, _) in sorted(self._holders.items()):
            named = found.setdefault((executor, pid), [])
            if len(named) < MAX_NAMED:
                named.append(self._job.vertex(vertex).task_name(subtask))
        return found

    def _describe(
        self, one: ExecutorStatus, holds: Counter[str], tasks: dict[tuple[str, int], list[str]] | None = None
    ) -> TaskManagerDescription:
        name, status, reason = one.executor, REGISTERED, ""
        told = self._reports.reported(name) or one
        if not one.active:
            status, meaning = (RELEASED if was_released(one.reason) else LOST), meaning_of(one.reason)
            reason = escaped(one.reason.strip().rstrip(".") or "Spark gives no reason")
            reason += f": {meaning}" if meaning else ""
        return TaskManagerDescription(
            id=_id_of(one),
            executor=name,
            host=one.host,
            in_driver=one.in_driver,
            address=one.address,
            status=status,
            registered_ms=one.added_ms,
            ended_ms=one.removed_ms,
            reason=reason,
            heartbeat_ms=max(one.heard_ms, told.heard_ms),
            cores=one.cores,
            slots=one.slots,
            running_tasks=one.running_tasks,
            memory=MemoryFigures(**{**told.memory, **one.memory}),
            garbage_collectors=tuple(GarbageCollector(of, *done) for of, done in one.collectors.items()),
            workers=tuple(
                WorkerDescription(pid, reported_ms, rss, tuple((tasks or {}).get((name, pid), ())))
                for pid, (reported_ms, rss, _) in sorted(self._alive(one, self._clock.now_ms()).items())
            ),
            holds=holds[name],
            held=tuple(
                HeldTask(self._job.vertex(vertex).task_name(subtask), epoch)
                for (vertex, subtask), epoch in self._held.get(name, {}).items()
            ),
        )


@cache
def _here() -> TaskPlace:
    return TaskPlace(socket.gethostname(), DRIVER, -1, -1, 0, 0, os.getpid())
