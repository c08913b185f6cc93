"""``execute_and_collect``: records go to a callback in the driver's process.

The callback is not part of the job (it cannot travel): it is looked up when an epoch commits, by the name that the sink
carries, or by (job id, sink uid) if it carries none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.errors import InternalError

_lock = threading.Lock()
_collectors: dict[tuple[str, str], _Collector] = {}

#: Stands for the sink uid of a collector that has a name of its own.
NAMED = "*"


class _Collector:
    """A callback, and per subtask the last epoch that it got: an epoch delivered again is not given twice."""

    def __init__(self, callback: Callable[[list[Any]], None]) -> None:
        self.callback = callback
        self.last_epoch: dict[int, int] = {}


def register_collector(job_id: str, sink_uid: str, callback: Callable[[list[Any]], None]) -> None:
    """From now on ``callback`` gets the lists of records that this sink commits, called in the committing thread."""
    with _lock:
        _collectors[job_id, sink_uid] = _Collector(callback)


def unregister_collector(job_id: str, sink_uid: str) -> None:
    """Forget the callback, if there is one."""
    with _lock:
        _collectors.pop((job_id, sink_uid), None)


class CollectSink(WriterSink):
    """Hands each record to the callback registered for this job and sink, or under the sink's own name: with
    ``CollectSink(name)`` and ``register_collector(name, NAMED, callback)`` before the job has an id.

    Guarantee: exactly once as long as the driver's process lives; a callback that raises gets the epoch again.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    @property
    def default_name(self) -> str:
        return "Collect Stream Sink"

    def create_writer(self) -> SinkWriter:
        return _CollectWriter()

    def create_committer(self) -> Committer:
        return _CollectCommitter(self._name)


class _CollectWriter(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        return values


class _CollectCommitter(Committer):
    on_driver = True

    def __init__(self, name: str | None) -> None:
        self._name = name

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        with _lock:
            own = (context.job_id, context.sink_uid)
            collector = _collectors.get(own if self._name is None else (self._name, NAMED))
        if collector is None:
            raise InternalError(
                "nobody collects the results",
                where=f"job {context.job_id}, sink '{context.sink_uid}'",
                expected="a collector registered before the first epoch",
            )
        if collector.last_epoch.get(context.subtask, -1) >= context.epoch:
            return 0
        # one call per epoch and subtask: a callback that raises half way would else see the first half twice
        rows = [value for values in committables for value in values]
        if rows:
            collector.callback(rows)
        collector.last_epoch[context.subtask] = context.epoch
        return len(rows)
