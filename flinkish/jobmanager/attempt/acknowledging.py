"""Acknowledges committed epochs to the sources: tells them up to which positions they have been read for good, as
Flink does with notifyCheckpointComplete.

Rule: no epoch waits for an acknowledgement, and none fails because of one. When epochs are committed faster than
sources are told, only the newest is acknowledged.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping

from flinkish.core.source import Source, SplitSource
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.sources.job_enumerator import NOTHING_READ
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.sources.split_list import SegmentStore

_log = logging.getLogger("flinkish.JobMaster")

#: How long the end of an attempt waits for the last acknowledgement, in seconds.
_LAST_S = 5.0


class Acknowledgements:
    """Acknowledges the epochs of one attempt of a job to the sources that override `SplitSource.acknowledge`, in a
    thread that starts with the first committed epoch."""

    def __init__(self, job: JobDescriptor, sources: Mapping[int, Source], store: SegmentStore) -> None:
        self._where = f"job '{job.name}'"
        self._store = store
        self._listening = {
            job.vertex(vertex).head.uid: source
            for vertex, source in sources.items()
            if isinstance(source, SplitSource) and type(source).acknowledge is not SplitSource.acknowledge
        }
        self._changed = threading.Condition()
        self._newest: str | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def wanted(self) -> bool:
        """Whether any source wants acknowledgements."""
        return bool(self._listening)

    def committed(self, offset: str | None) -> None:
        """Acknowledge a committed epoch, without waiting for it. ``offset``: the positions of the sources at its end,
        as the query's log has them; None: there is nothing to acknowledge."""
        with self._changed:
            self._newest = offset
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="flinkish-acknowledge", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Acknowledge the newest epoch, then end the thread; waits for a few seconds at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_LAST_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._newest is not None)
                newest, self._newest = self._newest, None
            if newest is None:
                return
            for uid, source in self._listening.items():
                self._tell(uid, source, newest)

    def _tell(self, uid: str, source: SplitSource, offset: str) -> None:
        try:
            stands = json.loads(offset)
            if stands == NOTHING_READ:
                return
            progress = SourceProgress.decode(stands["sources"][uid], self._where)
            splits = progress.splits.splits(self._store)
            source.acknowledge({splits[one.number].id: one.position for one in progress.open})
        except Exception as error:
            _log.warning("%s: source uid %s could not be told what is committed: %s", self._where, uid, error)
