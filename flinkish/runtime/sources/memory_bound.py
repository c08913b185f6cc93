"""Bounds the size of epochs by the memory of those who run them: shrinks fast when it becomes scarce, grows slowly.

* From `HIGH` of the memory on, each epoch has half the records of the one before.
* Memory that four such epochs have not freed is not that of their records but that of state, or memory that Python
  keeps for later. It is then the base, and epochs shrink again only when there is `STEP` more than that.
* Between `LOW` and `HIGH`, and below that up to the size at which memory became scarce, epochs grow by a quarter.

A share of memory that is not known (0) leaves all as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from flinkish.runtime.job.report import TaskReport

HIGH, LOW, STEP = 0.85, 0.7, 0.05

_SHRINKS, _GROWS = 0.5, 1.25
#: After so many epochs of half the size, it is not the records that need the memory.
_CUTS = 4


@dataclass(frozen=True)
class MemoryBound:
    """What is known of the memory after an epoch.

    Args:
        share: how much of the memory was in use when it was known last, from 0 to 1.
        base: the share that does not depend on the size of epochs, as far as that was tried; 0: it was not.
        cuts: how many epochs in a row were made smaller.
        scarce_at: the records of the epoch with which memory became scarce; 0: it is not, or not any more.

    >>> bound, factor = MemoryBound().after(0.9, 1_000.0)
    >>> factor, bound.after(0.5, 500.0)[1], bound.after(0.5, 1_000.0)[1]
    (0.5, 1.25, None)
    """

    share: float = 0.0
    base: float = 0.0
    cuts: int = 0
    scarce_at: float = 0.0

    def after(self, share: float, records: float) -> tuple[MemoryBound, float | None]:
        """What is known after a further epoch, and how many times as many records the next one may have at most; None:
        memory does not bound it.

        Args:
            share: how much of the memory was in use at its end; 0: it is not known.
            records: how many it had.
        """
        share = share or self.share
        if share >= HIGH and share > self.base + STEP:
            if self.cuts == _CUTS:
                return replace(self, share=share, base=share, cuts=0), _GROWS
            return replace(self, share=share, cuts=self.cuts + 1, scarce_at=self.scarce_at or records), _SHRINKS
        if share >= LOW:
            return replace(self, share=share, cuts=0), _GROWS
        if records < self.scarce_at:
            return replace(self, share=share, base=0.0, cuts=0), _GROWS
        return MemoryBound(share), None


class WorkersMemory:
    """How much of their memory the processes that run a job's tasks have in use, from what tasks report of them."""

    #: How long figures of a process count, in seconds: its tasks may run elsewhere by then.
    KEPT_S = 60.0

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        #: (host, process id) -> when it was heard of last, and the figures (``runtime/process.py``)
        self._known: dict[tuple[str, str], tuple[float, dict[str, int]]] = {}

    def after(self, tasks: Iterable[TaskReport]) -> float:
        """The share that is in use, from 0 to 1, where there is least left: of what a process may have, or of the
        memory of a machine or container. Processes of others do not count. 0: it is not known.

        Args:
            tasks: the reports of the tasks of an epoch.
        """
        now_s = self._clock_s()
        for task in tasks:
            if task.process:
                host, _, pid = task.worker.rpartition(":")
                self._known[host, pid] = now_s, task.process
        self._known = {process: one for process, one in self._known.items() if now_s - one[0] <= self.KEPT_S}
        found = [0.0]
        used: dict[str, dict[str, int]] = {}
        physical: dict[str, int] = {}
        for (host, pid), (_, figures) in self._known.items():
            if figures.get("limit"):
                found.append(figures.get("virtual", 0) / figures["limit"])
            physical[host] = figures.get("physical", 0)
            of_host = used.setdefault(host, {})
            of_host[pid] = figures.get("rss", 0)
            if "jvm" in figures:
                of_host[str(figures["jvm"])] = figures.get("jvm_rss", 0)
        found += [sum(used[host].values()) / size for host, size in physical.items() if size]
        return round(max(found), 3)
