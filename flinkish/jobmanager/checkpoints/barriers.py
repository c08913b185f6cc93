"""The watermarks, sizes of state and accumulators at the ends of the last epochs, as the tasks have reported them."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor

#: Number of epochs that are remembered: Spark commits an epoch soon after its sinks have.
_EPOCHS = 32


@dataclass(frozen=True)
class Barrier:
    """What is known of the job at the end of an epoch; nothing of tasks that have not reported since the driver
    started."""

    epoch: int
    #: uid of a vertex' head operator -> lowest watermark of its subtasks
    watermarks: dict[str, int] = field(default_factory=dict)
    #: uid of a vertex' head operator -> bytes of its state, as its tasks hold it
    state_bytes: dict[str, int] = field(default_factory=dict)
    #: totals of the job's accumulators, encoded
    accumulators: bytes = b""


class Barriers:
    """Remembers the barriers of the last epochs. Any thread may call it."""

    def __init__(self) -> None:
        self._watermarks: dict[tuple[int, int], int] = {}
        self._bytes: dict[tuple[int, int], int] = {}
        self._ends: OrderedDict[int, Barrier] = OrderedDict()
        self._lock = threading.Lock()
        self._accumulators = b""

    def begin(self, accumulators: bytes) -> None:
        """Set the totals of the accumulators as of the end of the last epoch before those that will be added."""
        with self._lock:
            self._accumulators = accumulators

    def add(self, job: JobDescriptor, report: EpochReport) -> None:
        """Remember the barrier of an epoch that the sinks have committed."""
        with self._lock:
            self._accumulators = report.accumulators or self._accumulators
            for task in report.tasks:
                if task.watermark_ms is not None:
                    self._watermarks[task.vertex, task.subtask] = task.watermark_ms
                if task.state_bytes:
                    self._bytes[task.vertex, task.subtask] = task.state_bytes
            self._ends[report.epoch] = Barrier(report.epoch, self._lowest(job), self._sizes(job), self._accumulators)
            while len(self._ends) > _EPOCHS:
                self._ends.popitem(last=False)

    def of(self, epoch: int) -> Barrier:
        """The barrier of an epoch; if it is not remembered, one with the latest totals of the accumulators alone."""
        with self._lock:
            return self._ends.get(epoch, Barrier(epoch, accumulators=self._accumulators))

    def _lowest(self, job: JobDescriptor) -> dict[str, int]:
        lowest: dict[str, int] = {}
        for (vertex, _), watermark_ms in self._watermarks.items():
            if MIN_TIMESTAMP_MS < watermark_ms < MAX_WATERMARK_MS:
                uid = job.vertex(vertex).head.uid
                lowest[uid] = min(watermark_ms, lowest.get(uid, watermark_ms))
        return lowest

    def _sizes(self, job: JobDescriptor) -> dict[str, int]:
        sizes: dict[str, int] = defaultdict(int)
        for (vertex, _), size in self._bytes.items():
            sizes[job.vertex(vertex).head.uid] += size
        return dict(sizes)
