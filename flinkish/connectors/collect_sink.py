"""The sink of ``execute_and_collect``: hands the records to a callback in the driver's process.

The callback is not part of the pickled job graph, since it cannot be serialized. It is looked up when an epoch commits:
by the name that the sink carries, or by (job id, sink uid) if the sink has no name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.errors import InternalError

_lock = threading.Lock()
_collectors: dict[tuple[str, str], _Collector] = {}

#: Takes the place of the sink uid when a collector is registered under a name of its own.
NAMED = "*"


class _Collector:
    """A callback and, per job, sink and subtask, the last epoch that it received, so that an epoch that is committed
    again is not handed to it twice."""

    def __init__(self, callback: Callable[[list[Any]], None]) -> None:
        self.callback = callback
        self.last_epoch: dict[tuple[str, str, int], int] = {}


def register_collector(job_id: str, sink_uid: str, callback: Callable[[list[Any]], None]) -> None:
    """Register ``callback`` for the records that this sink commits. It is called in the committing thread, with the
    list of all records of one subtask and epoch, and not at all for an empty one."""
    with _lock:
        _collectors[job_id, sink_uid] = _Collector(callback)


def unregister_collector(job_id: str, sink_uid: str) -> None:
    """Remove the callback of this sink, if one is registered."""
    with _lock:
        _collectors.pop((job_id, sink_uid), None)


class CollectSink(WriterSink):
    """Hands the records to the callback that is registered for this job and sink.

    Where the callback must be registered before the job has an id, give the sink a name of its own:
    ``CollectSink(name)`` and ``register_collector(name, NAMED, callback)``.

    Guarantee: exactly once as long as the driver's process lives. A callback that raises gets the same epoch again.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    reads_timestamps = False

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
        committer = (context.job_id, context.sink_uid, context.subtask)
        if collector.last_epoch.get(committer, -1) >= context.epoch:
            return 0
        # One call per epoch and subtask: with several calls, a callback that raises in a later one would see the
        # records of the earlier ones twice.
        rows = [value for values in committables for value in values]
        if rows:
            collector.callback(rows)
        collector.last_epoch[committer] = context.epoch
        return len(rows)
