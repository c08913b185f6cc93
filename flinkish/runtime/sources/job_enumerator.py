"""The sources of a job, planned together: one offset for all of them (Flink's SourceCoordinator for each).

{"announce": false, "epoch": 17, "sources": {uid: where it stands}, "time_ms": 1700000000000}

and, where sources are aligned with each other, "watermarks": {uid: {stream: how far it was before the epoch}}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flinkish.core.source import SourceLimits, SourceSplit, SplitEnumerator, SplitSource
from flinkish.errors import CorruptStateError, FlinkishError
from flinkish.runtime.clock import Clock
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.sources.alignment import AlignmentCoordinator, Watermarks
from flinkish.runtime.sources.epoch_planner import EpochPlanner, is_news
from flinkish.runtime.sources.progress import SourceProgress, SourceShare, ranges_between
from flinkish.runtime.sources.split_list import SegmentStore

#: The offset of a query that has not read anything yet.
NOTHING_READ: dict[str, Any] = {}


@dataclass(frozen=True)
class CoordinatedSource:
    """A source of a job that is read split by split."""

    vertex: int
    uid: str
    name: str
    source: SplitSource
    parallelism: int


def coordinated_sources(job: JobDescriptor) -> list[CoordinatedSource]:
    """Those of a job, in the order of their vertices."""
    return [
        CoordinatedSource(vertex.id, vertex.head.uid, vertex.name, vertex.source, vertex.parallelism)
        for vertex in job.vertices
        if isinstance(vertex.source, SplitSource)
    ]


class JobEnumerator:
    """Plans the epochs of a job's query.

    Args:
        job: the job graph.
        limits: what one epoch may take in from one source.
        store: where long lists of splits go.
        clock: gives each epoch its processing time.
        restored: uid -> where the source stood in the savepoint that the job begins with.
    """

    def __init__(
        self,
        job: JobDescriptor,
        limits: SourceLimits,
        store: SegmentStore,
        clock: Clock,
        restored: Mapping[str, SourceProgress] | None = None,
    ) -> None:
        self._where = f"job '{job.name}'"
        self._sources = coordinated_sources(job)
        self._limits = limits
        self._store = store
        self._clock = clock
        self._restored = restored or {}
        self._planners: dict[str, EpochPlanner] = {}
        self._enumerators: list[SplitEnumerator] = []
        self._frozen = False
        self._alignment = AlignmentCoordinator(job, limits.batch_size)

    @property
    def aligned(self) -> bool:
        """Whether sources are held back by watermarks: `next_offset` then needs those that were reached."""
        return bool(self._alignment)

    def next_offset(
        self,
        start: dict[str, Any],
        forced: bool = False,
        announce: bool = False,
        reached: Watermarks | None = None,
    ) -> dict[str, Any]:
        """Where the sources stand at the end of the next epoch; ``start`` itself when there is nothing to do.

        Args:
            start: where they stand now.
            forced: there must be an epoch, also without data.
            announce: the epoch announces the end of the sources that Spark reads.
            reached: the watermarks that aligned sources have reached in the epoch that ended with ``start``.
        """
        epoch = start.get("epoch", 0) + 1
        # what a savepoint says of sources that have ended must be told to the new query
        news, stands = forced or announce or (start == NOTHING_READ and bool(self._restored)), {}
        segments: set[str] = set()
        now_ms = self._clock.now_ms()
        places = {one.uid: self.progress(start, one.uid) for one in self._sources}
        planners = {one.uid: self._planner(one, places[one.uid]) for one in self._sources}
        for uid, planner in planners.items():
            planner.discover(places[uid])
        streams = {uid: planner.streams(places[uid]) for uid, planner in planners.items() if uid in self._alignment}
        progress = self._alignment.progress(start.get("watermarks", {}), reached or {}, streams, now_ms)
        allowed = self._alignment.allowances(progress, streams, now_ms, self._frozen)
        for one in self._sources:
            before = places[one.uid]
            after = planners[one.uid].next(before, epoch, allowed.get(one.uid))
            news = news or is_news(before, after)
            stands[one.uid] = after.encode()
            segments.update(name for name, _ in (*before.splits.segments, *after.splits.segments))
        if not news:
            return start
        self._store.sweep(segments, epoch)
        offset = {
            "announce": announce,
            "epoch": epoch,
            "sources": dict(sorted(stands.items())),
            "time_ms": now_ms,
        }
        if self.aligned:
            read = {uid: planner.records for uid, planner in planners.items()}
            offset["watermarks"] = self._alignment.encode(progress, read)
        return offset

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[SourceShare]:
        """What each subtask of each source does in the epoch between the two. Every one has a share: also those that
        read nothing have a watermark, and an end."""
        found = []
        for one in self._sources:
            before, after = self.progress(start, one.uid), self.progress(end, one.uid)
            ranges = ranges_between(before, after, self._store, one.parallelism)
            for subtask in range(one.parallelism):
                held = tuple(split for holder, split in after.held if holder == subtask)
                ended = start != NOTHING_READ and before.ended(subtask)
                ends = after.ended(subtask) and not ended
                found.append(
                    SourceShare(one.vertex, subtask, end["time_ms"], tuple(ranges[subtask]), ends, ended, held)
                )
        return found

    def progress(self, offset: dict[str, Any], uid: str) -> SourceProgress:
        """Where a source stands."""
        if offset == NOTHING_READ:
            return self._restored.get(uid, SourceProgress())
        where = f"{self._where}, source uid {uid}"
        if uid not in offset.get("sources", {}):
            raise CorruptStateError(
                f"the query's log has no position of the source: {str(offset)[:200]}",
                where=where,
                hint="restore the query's log from a copy, or start the job from its last checkpoint or savepoint",
            )
        return SourceProgress.decode(offset["sources"][uid], where)

    def _planner(self, one: CoordinatedSource, start: SourceProgress) -> EpochPlanner:
        found = self._planners.get(one.uid)
        if found is None:
            try:
                enumerator = one.source.create_enumerator(known_splits(start, self._store))
            except FlinkishError as error:
                error.where = "; ".join(part for part in (f"{self._where}, source uid {one.uid}", error.where) if part)
                raise
            if self._frozen:
                enumerator.freeze()
            self._enumerators.append(enumerator)
            found = EpochPlanner(one.source, enumerator, one.parallelism, self._limits, self._store)
            self._planners[one.uid] = found
        return found

    def freeze(self) -> None:
        """From now on plan only what is there now."""
        self._frozen = True
        for enumerator in self._enumerators:
            enumerator.freeze()

    def close(self) -> None:
        """The query has ended."""
        for enumerator in self._enumerators:
            enumerator.close()


def known_splits(progress: SourceProgress, store: SegmentStore) -> list[SourceSplit]:
    """All splits of a source, each with the position at which it stands; one that has ended has none."""
    splits = progress.splits.splits(store)
    going = {one.number: one.position for one in progress.open}
    for index, split in enumerate(splits):
        if index in going:
            splits[index] = SourceSplit(split.id, going[index], split.end, split.info)
        elif index < progress.next:
            splits[index] = SourceSplit(split.id)
    return splits
