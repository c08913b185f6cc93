"""A pool of connections and clients that a process keeps open between epochs.

Rules upheld here:

* A resource has one user at a time. It is kept only if its use ended without an error; after an error of any kind, an
  interrupt included, its state is unknown and it is closed.
* At most ``limit`` resources are kept: beyond that the least recently used one is closed. A timer closes a resource
  that has been idle for ``idle_limit_s``, and all of them are closed when the interpreter exits. A worker process that
  Spark kills has no time to close anything; the operating system closes its sockets, and a kept resource has no
  operation in progress.
* A resource belongs to the process that opened it. A forked child neither uses nor closes nor frees it: closing would
  write to the parent's socket, and a client with threads of its own would wait forever for threads that a fork does
  not copy.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Resource = TypeVar("Resource")

#: How long an idle resource is kept, in seconds; the same as Spark's limit for idle Python workers.
IDLE_LIMIT_S = 60.0


@dataclass(frozen=True)
class _Kept(Generic[Resource]):
    resource: Resource
    since_s: float


class KeptResources(Generic[Resource]):
    """A pool of resources of one kind in this process: at most one idle resource per key.

    >>> kept = KeptResources[list[str]](close=lambda opened: opened.append("closed"), limit=2)
    >>> with kept.use("db", lambda: ["opened"]) as first:
    ...     first.append("used")
    >>> with kept.use("db", lambda: ["opened"]) as second:
    ...     second is first
    True

    Args:
        close: closes a resource; must not raise. May be called in a thread of its own.
        limit: how many idle resources are kept.
        idle_limit_s: how long a resource is kept while it is idle, in seconds.
        clock: gives the time in seconds; it never goes back.
        process: gives the id of this process.
        timer: called with (seconds, function): calls the function after that time, in a thread that does not keep the
            process alive; None: a ``threading.Timer``.
    """

    def __init__(
        self,
        close: Callable[[Resource], None],
        limit: int,
        idle_limit_s: float = IDLE_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
        process: Callable[[], int] = os.getpid,
        timer: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        self._close = close
        self._limit = limit
        self._idle_limit_s = idle_limit_s
        self._clock = clock
        self._process = process
        self._timer = _start_timer if timer is None else timer
        self._begin()
        atexit.register(self.close_all)

    def _begin(self) -> None:
        # a lock that another thread held at the moment of a fork would never be released in the child
        self._lock = threading.Lock()
        # least recently used first
        self._kept: dict[Hashable, _Kept[Resource]] = {}
        self._timer_runs = False
        self._owner = self._process()

    @contextmanager
    def use(self, key: Hashable, open_resource: Callable[[], Resource]) -> Iterator[Resource]:
        """Take the resource that is kept under the key, or open one. On exit it is kept, unless the body of the
        ``with`` statement raised: then it is closed."""
        self._leave_to_parent()
        with self._lock:
            found = self._kept.pop(key, None)
        resource = open_resource() if found is None else found.resource
        try:
            yield resource
        except BaseException:
            self._close(resource)
            raise
        if self._process() == self._owner:
            self._keep(key, resource)

    def close_idle(self) -> None:
        """Close the resources that have been idle for ``idle_limit_s`` or longer."""
        if self._process() == self._owner:
            self._close_where(lambda kept: self._clock() - kept.since_s >= self._idle_limit_s)

    def close_all(self) -> None:
        """Close all resources that are idle now; those in use are kept when their use ends."""
        self._leave_to_parent()
        self._close_where(lambda _: True)

    def __len__(self) -> int:
        self._leave_to_parent()
        return len(self._kept)

    def _keep(self, key: Hashable, resource: Resource) -> None:
        with self._lock:
            # Another thread may have kept a resource under this key meanwhile: the one used last stays.
            superfluous = [self._kept.pop(key)] if key in self._kept else []
            self._kept[key] = _Kept(resource, self._clock())
            if len(self._kept) > self._limit:
                superfluous.append(self._kept.pop(next(iter(self._kept))))
        for kept in superfluous:
            self._close(kept.resource)
        self._plan_closing()

    def _plan_closing(self) -> None:
        with self._lock:
            oldest = next(iter(self._kept.values()), None)
            if self._timer_runs or oldest is None:
                return
            self._timer_runs = True
        self._timer(max(0.0, oldest.since_s + self._idle_limit_s - self._clock()), self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer_runs = False
        self.close_idle()
        self._plan_closing()

    def _close_where(self, condition: Callable[[_Kept[Resource]], bool]) -> None:
        with self._lock:
            found = [key for key, kept in self._kept.items() if condition(kept)]
            closing = [self._kept.pop(key) for key in found]
        for kept in closing:
            self._close(kept.resource)

    def _leave_to_parent(self) -> None:
        if self._process() == self._owner:
            return
        for kept in self._kept.values():
            never_free(kept.resource)
        self._begin()


def never_free(resource: Any) -> None:
    """Keep an object that belongs to the parent of this process in memory as long as the process lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _start_timer(delay_s: float, function: Callable[[], None]) -> None:
    timer = threading.Timer(delay_s, function)
    timer.daemon = True
    timer.start()
