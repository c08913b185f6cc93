"""Samples the stacks of the tasks of a worker on request, for flame graphs.

    <query>/progress/sample-stacks.json     what the driver asks for
    <query>/progress/<token>.stacks.json    what one worker has seen since

Rule: this costs nothing unless ``rest.flamegraph.enabled`` is set, and then one look for the request a second (ten
seconds on object stores) and process. Only names and lines of code are read, never the values of variables.

As with the progress files (``runtime/task/progress.py``), the job directory is what driver and workers of every
deployment share.
"""

from __future__ import annotations

import os
import posixpath
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import NamedTuple

from flinkish.errors import FlinkishError
from flinkish.storage.paths import FileKind, check_below, local_path
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import storage_of

#: Seconds between two publications while stacks are being sampled.
_PUBLISH_S = 2.0
#: The least part of the time between two looks in which a thread that is on the CPU has used it: where others want it,
#: too, it has to wait for its turn.
_ON_CPU = 0.2


class SampledThread(NamedTuple):
    """The thread that runs a task."""

    vertex: int
    subtask: int
    thread: int


@dataclass(frozen=True)
class SampleRequest(StoredFile):
    """What the driver asks the workers for: this many stacks each, taken so many ms apart, within a time, with so many
    frames at most. Each request has an id of its own."""

    NAME = "sample-stacks.json"
    VERSION = OLDEST = 0
    FOLDER = "<query>/progress"
    WHEN = "once a flame graph was asked for"
    READER = "the workers"
    LENIENT = True
    KIND = FileKind.PROGRESS
    REMEDY = "nothing need be done: it is written anew"

    id: str
    samples: int
    delay_ms: int
    within_ms: int
    depth: int


@dataclass(frozen=True)
class SampledStack:
    """A stack of a task, and how often it was seen.

    Args:
        on_cpu: whether the thread has used the CPU before; None: the system does not say it.
        frames: function and line (``shop.orders.Total.map:17``), the outermost first.
    """

    vertex: int
    subtask: int
    on_cpu: bool | None
    count: int
    frames: tuple[str, ...]


@dataclass(frozen=True)
class StackSamples(StoredFile):
    """The stacks of the tasks of a worker that were sampled for a request."""

    NAME = "{}.stacks.json"
    PART = "[0-9a-f]{32}"
    VERSION = OLDEST = 0
    FOLDER = "<query>/progress"
    WHEN = "once a flame graph was asked for"
    LENIENT = True
    KIND = FileKind.PROGRESS
    REMEDY = "nothing need be done: it is written anew"

    request: str
    #: time of the last sample, in ms since 1970
    end_ms: int
    stacks: tuple[SampledStack, ...]


class SampleBoard:
    """Where the driver asks for samples and workers leave them, within one process."""

    def __init__(self) -> None:
        self._request: SampleRequest | None = None
        self._samples: StackSamples | None = None

    def ask(self, request: SampleRequest) -> None:
        """Ask all workers for samples."""
        self._request = request

    def request(self) -> SampleRequest | None:
        """What was asked for last; None: nothing was."""
        return self._request

    def publish(self, samples: StackSamples) -> None:
        """Leave the samples of a worker, in the place of its earlier ones."""
        self._samples = samples

    def samples(self) -> list[StackSamples]:
        """The samples of all workers."""
        return [] if self._samples is None else [self._samples]


class SampleFiles(SampleBoard):
    """The same in the directory of a query. The driver makes it and deletes it with the attempt; without it nothing is
    written."""

    def __init__(self, query: str) -> None:
        super().__init__()
        self._directory = posixpath.join(query, "progress")
        self._worker = uuid.uuid4().hex

    def ask(self, request: SampleRequest) -> None:
        """Write the file of the request."""
        if self._is_there():
            request.write(self._directory)

    def request(self) -> SampleRequest | None:
        """Read the file of the request."""
        return SampleRequest.read(self._directory)

    def publish(self, samples: StackSamples) -> None:
        """Write the file of this worker."""
        if self._is_there():
            samples.write(self._directory, self._worker)

    def samples(self) -> list[StackSamples]:
        """Read the files of all workers; those that cannot be read are left out."""
        found = []
        for entry in storage_of(self._directory).list(self._directory):
            worker = StackSamples.parts_of(entry.name) if entry.is_file else None
            with suppress(FlinkishError, OSError, ValueError):
                check_below(self._directory, entry.path)
                samples = None if worker is None else StackSamples.read(self._directory, *worker)
                found += [] if samples is None else [samples]
        return found

    def _is_there(self) -> bool:
        local = local_path(self._directory)
        return local is None or os.path.isdir(local)


class StackSampler:
    """Samples the stacks of the tasks of a worker when it is asked to, in a thread of its own.

    Args:
        board: where it is asked, and leaves the samples.
        running: while the context lasts, its value is the thread that runs a task, which does not end meanwhile; None:
            no task runs.
        every_s: least time between two looks for a request.
    """

    def __init__(
        self,
        board: SampleBoard,
        running: Callable[[], AbstractContextManager[SampledThread | None]],
        every_s: float,
    ) -> None:
        self._board = board
        self._running = running
        self._every_s = every_s
        self._looked_s = -every_s
        self._asked = ""
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Begin to sample if there is a new request, unless one is being carried out. Called now and then."""
        now_s = time.monotonic()
        if now_s - self._looked_s < self._every_s or (self._thread is not None and self._thread.is_alive()):
            return
        self._looked_s = now_s
        with suppress(FlinkishError, OSError):
            request = self._board.request()
            if request is not None and request.id != self._asked:
                self._asked = request.id
                self._thread = threading.Thread(
                    target=self._sample, args=(request,), name="flinkish-stacks", daemon=True
                )
                self._thread.start()

    def _sample(self, request: SampleRequest) -> None:
        seen: Counter[tuple[int, int, bool | None, tuple[str, ...]]] = Counter()
        published, end_ms = 0, 0
        published_s = time.monotonic()
        until_s = published_s + request.within_ms / 1000
        cpu = _CpuClock()
        while seen.total() < request.samples and time.monotonic() < until_s:
            time.sleep(request.delay_ms / 1000)
            with self._running() as task:
                if task is not None:
                    on_cpu = cpu.was_used(task.thread)
                    frames = frames_of(sys._current_frames().get(task.thread), request.depth)
                    seen[task.vertex, task.subtask, on_cpu, frames] += 1
                    end_ms = int(time.time() * 1000)
            if seen.total() > published and time.monotonic() - published_s >= _PUBLISH_S:
                published, published_s = seen.total(), time.monotonic()
                self._publish(request, end_ms, seen)
        if seen.total() > published:
            self._publish(request, end_ms, seen)

    def _publish(
        self, request: SampleRequest, end_ms: int, seen: Counter[tuple[int, int, bool | None, tuple[str, ...]]]
    ) -> None:
        stacks = tuple(
            SampledStack(vertex, subtask, on_cpu, count, frames)
            for (vertex, subtask, on_cpu, frames), count in seen.items()
        )
        with suppress(FlinkishError, OSError):
            self._board.publish(StackSamples(request.id, end_ms, stacks))


class _CpuClock:
    """Tells whether a thread was on the CPU since the last look."""

    def __init__(self) -> None:
        self._last: tuple[int, float, float] | None = None

    def was_used(self, thread: int) -> bool | None:
        """Whether this thread, which must be alive, has used the CPU for a part of the time since the last look;
        None: it was not looked at before, or the system does not say it."""
        if not hasattr(time, "pthread_getcpuclockid"):
            return None
        used_s, now_s = time.clock_gettime(time.pthread_getcpuclockid(thread)), time.monotonic()
        last, self._last = self._last, (thread, used_s, now_s)
        if last is None or last[0] != thread:
            return None
        return used_s - last[1] >= _ON_CPU * (now_s - last[2])


def frames_of(innermost: FrameType | None, depth: int) -> tuple[str, ...]:
    """The frames of a stack, the outermost first; the innermost ``depth`` of them at most."""
    found: list[str] = []
    # the thread goes on meanwhile: Python 3.11 was seen to give something else for the caller of a frame
    while isinstance(innermost, FrameType) and len(found) < depth:
        code = innermost.f_code
        module = innermost.f_globals.get("__name__")
        name = getattr(code, "co_qualname", code.co_name)
        found.append(f"{module if isinstance(module, str) else '?'}.{name}:{innermost.f_lineno}")
        innermost = innermost.f_back
    return tuple(found[::-1])
