"""Plans the sources of a job together, with one offset for all of them (Flink has a SourceCoordinator for each):

{"announce": false, "epoch": 17, "sources": {uid: progress of the source}, "time_ms": 1700000000000}

and, if sources are aligned with each other, "watermarks": {uid: {stream: progress of the stream before the epoch}},
and, if functions of a source's chain see its watermarks, "states": {uid: {split: what is known before the epoch}},
and, if epochs are sized by what they take, "size": {"limits": {uid: records}, ...}, and, if the epoch leaves records
that are there, "backlog": {uid: records}, or "backlog_splits": {uid: splits} of a source that reads them one after the
other.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

from flinkish.common.arguments import check_made
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitEnumeratorContext, SplitSource
from flinkish.errors import CorruptStateError, FlinkishError, ProgramError, failures_of_user_code, message_of
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.failure import describe_failure
from flinkish.runtime.phases import Clock
from flinkish.runtime.sources.alignment import AlignmentCoordinator, Reached, SourceStream, keeps_watermarks
from flinkish.runtime.sources.epoch_planner import EpochPlanner, is_news
from flinkish.runtime.sources.progress import STREAM, SourceProgress, SourceShare, ranges_between
from flinkish.runtime.sources.sizer import EpochSize, EpochSizer, EpochTimes, SourceBounds, sizes_epochs
from flinkish.runtime.sources.split_list import SegmentStore
from flinkish.storage.sealed import json_as, typed

#: The offset of a query that has not read anything yet.
NOTHING_READ: dict[str, Any] = {}


@dataclass(frozen=True)
class CoordinatedSource:
    """A source of a job that is read split by split, in its vertex."""

    vertex: int
    uid: str
    name: str
    source: SplitSource
    parallelism: int
    #: numbers of the source vertices that must have ended before this one is read
    waits_for: tuple[int, ...] = ()

    def has_ended(self, progress: SourceProgress) -> bool:
        """Whether nothing more will ever be read of the source."""
        return progress.all_assigned and not progress.open


def coordinated_sources(job: JobDescriptor) -> list[CoordinatedSource]:
    """The sources of a job that are read split by split, in the order of their vertices."""
    return [
        CoordinatedSource(vertex.id, vertex.head.uid, vertex.name, vertex.source, vertex.parallelism, vertex.waits_for)
        for vertex in job.vertices
        if isinstance(vertex.source, SplitSource)
    ]


class JobEnumerator:
    """Plans the epochs of a job's query.

    Args:
        job: the job graph.
        store: store of the segments of long lists of splits.
        clock: gives each epoch its processing time.
        restored: uid -> progress of the source in the savepoint that the job starts from.
        directory: path or URI of a directory in which each source has its own.
        given_up: the offset of the epoch that was given up last, which may be the one that is planned next; {}: none.
    """

    def __init__(
        self,
        job: JobDescriptor,
        store: SegmentStore,
        clock: Clock,
        restored: Mapping[str, SourceProgress] | None = None,
        directory: str = "",
        given_up: Mapping[str, Any] | None = None,
    ) -> None:
        self._where = f"job '{job.name}'"
        self._sources = coordinated_sources(job)
        self._settings = job.settings
        self._store = store
        self._clock = clock
        self._restored = restored or {}
        self._directory = directory
        self._given_up = given_up or {}
        self._planners: dict[str, EpochPlanner] = {}
        self._enumerators: list[SplitEnumerator] = []
        self._frozen = False
        self._alignment = AlignmentCoordinator(job, job.settings.source_batch_size)
        #: None: each epoch reads as much as the limits permit
        self._sizer: EpochSizer | None = None
        vertices = [job.vertex(one.vertex) for one in self._sources]
        self._with_states = {vertex.head.uid for vertex in vertices if keeps_watermarks(vertex)}
        if sizes_epochs(job):
            bounds = {one.uid: SourceBounds(one.parallelism, self._most(one)) for one in self._sources}
            self._sizer = EpochSizer(job.settings.epoch_target_ms, bounds)

    @property
    def most_partitions(self) -> int | None:
        """Most Spark tasks of a source; None: one per subtask."""
        return self._settings.spark_partitions

    @property
    def learns(self) -> bool:
        """Whether `next_offset` needs to know what the tasks of sources have reached: sources are aligned, or functions
        of their chains see watermarks."""
        return bool(self._alignment) or bool(self._with_states)

    @property
    def sized(self) -> bool:
        """Whether epochs are sized by what they take; `next_offset` then needs the times of the last one."""
        return self._sizer is not None

    def _most(self, one: CoordinatedSource) -> int:
        return self._settings.source_limits(one.parallelism).max_records

    def next_offset(
        self,
        start: dict[str, Any],
        forced: bool = False,
        announce: bool = False,
        reached: Reached | None = None,
        times: EpochTimes | None = None,
    ) -> dict[str, Any]:
        """Plan the next epoch; returns the offset at its end, or ``start`` itself if there is nothing to do.

        Args:
            start: the offset of the last epoch.
            forced: whether there must be an epoch even without data.
            announce: whether the epoch announces the end of the sources that Spark reads.
            reached: what the tasks of the sources had reached at the end of the epoch that ended with ``start``.
            times: how long the epoch that ended with ``start`` has taken; None if that is not known.
        """
        epoch, now_ms = start.get("epoch", 0) + 1, self._clock.now_ms()
        committed = {one.uid: self.progress(start, one.uid) for one in self._sources}
        reached = reached or Reached()
        places, states, reached_ms = committed, start.get("watermarks", {}), reached.watermarks
        of_splits = reached.states or start.get("states", {})
        if self._given_up.get("epoch") == epoch:
            # what that plan was based on still holds; what its tasks have reported was not
            places = {uid: self._with_findings(uid, progress) for uid, progress in committed.items()}
            states, reached_ms = self._alignment.before(self._given_up.get("watermarks", {})), {}
            of_splits = self._given_up.get("states", {})
            # it was too long, or it failed: nothing is known of the next one
            times = None
        streams = self._discovered(places, epoch)
        progress = self._alignment.progress(states, reached_ms, streams, now_ms)
        allowed = self._alignment.allowances(progress, streams, now_ms, self._frozen)
        size = self._size(start, times)
        ends = self._ends(places, allowed, {} if size is None else size.limits, epoch)
        # the new query must learn from the first epoch which sources have ended according to the savepoint
        asked = forced or announce or (start == NOTHING_READ and bool(self._restored))
        if not asked and not any(is_news(committed[uid], end) for uid, (end, _) in ends.items()):
            return start
        both = (*places.values(), *(end for end, _ in ends.values()))
        self._store.sweep({name for one in both for name, _ in one.splits.segments}, epoch)
        offset = {
            "announce": announce,
            "epoch": epoch,
            "sources": {uid: encoded for uid, (_, encoded) in sorted(ends.items())},
            "time_ms": now_ms,
            **self._left(),
        }
        read = {uid: planner.records for uid, planner in self._planners.items()}
        known = {uid: states for uid, states in sorted(of_splits.items()) if uid in self._with_states}
        if known:
            offset["states"] = known
        if self._alignment:
            offset["watermarks"] = self._alignment.encode(progress, read)
        if size is not None:
            offset["size"] = asdict(replace(size, read={uid: sum(streams.values()) for uid, streams in read.items()}))
        return offset

    def _left(self) -> dict[str, Any]:
        """What the planned epoch leaves of each source, as far as it leaves anything."""
        backlog = {uid: round(planner.backlog) for uid, planner in self._planners.items() if planner.backlog >= 1}
        splits = {uid: planner.backlog_splits for uid, planner in self._planners.items()}
        of_splits = {"backlog_splits": splits} if any(splits.values()) else {}
        return ({"backlog": backlog} if backlog else {}) | of_splits

    def _size(self, start: dict[str, Any], times: EpochTimes | None) -> EpochSize | None:
        """The size of the next epoch; None: only the limits bound it."""
        if self._sizer is None:
            return None
        if times is None:
            return self._sizer.first()
        try:
            return self._sizer.next(typed(EpochSize, start.get("size")), times)
        except ValueError:
            # the query's log is of a version that did not size epochs
            return self._sizer.first()

    def _with_findings(self, uid: str, progress: SourceProgress) -> SourceProgress:
        planned = self._given_up["sources"].get(uid)
        where = f"{self._where}, source uid {uid}"
        return progress if planned is None else progress.with_findings_of(SourceProgress.decode(planned, where))

    def _discovered(self, places: dict[str, SourceProgress], epoch: int) -> dict[str, list[SourceStream]]:
        """Look for new splits of the sources that wait for no other one; returns the streams of the aligned sources."""
        streams: dict[str, list[SourceStream]] = {}
        for one in self._sources:
            with self._asking(one, epoch):
                planner = self._planner(one, places[one.uid])
                if one.waits_for:
                    continue
                planner.discover(places[one.uid], epoch)
                if one.uid in self._alignment:
                    streams[one.uid] = planner.streams(places[one.uid])
        return streams

    def _ends(
        self,
        places: dict[str, SourceProgress],
        allowed: dict[str, dict[str, float]],
        most: dict[str, int],
        epoch: int,
    ) -> dict[str, tuple[SourceProgress, dict[str, Any]]]:
        """Plan the epoch of each source; returns uid -> progress at its end, and the same encoded."""
        ends: dict[str, tuple[SourceProgress, dict[str, Any]]] = {}
        ended: set[int] = set()
        for one in self._in_turns():
            before = places[one.uid]
            with self._asking(one, epoch):
                if not ended.issuperset(one.waits_for):
                    end = replace(before, begun=(), stops=(), held=())
                else:
                    planner = self._planner(one, before)
                    if one.waits_for:
                        planner.discover(before, epoch)
                    end = planner.next(before, epoch, allowed.get(one.uid), most.get(one.uid))
                    if one.has_ended(end):
                        ended.add(one.vertex)
                ends[one.uid] = end, _checked(end.encode())
        return ends

    def _in_turns(self) -> Iterator[CoordinatedSource]:
        """The sources, each after those that it waits for."""
        left, done = list(self._sources), set[int]()
        known = {one.vertex for one in left}
        while left:
            ready = [one for one in left if done.issuperset(known.intersection(one.waits_for))]
            yield from ready
            done.update(one.vertex for one in ready)
            left = [one for one in left if one.vertex not in done]

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[SourceShare]:
        """The shares of all subtasks of all sources in the epoch between two offsets. Every subtask has a share, since
        one that reads nothing has a watermark and an end, too."""
        found = []
        for one in self._sources:
            before, after = self.progress(start, one.uid), self.progress(end, one.uid)
            ranges = ranges_between(before, after, self._store, one.parallelism)
            together, apart = self._stage_between(one.source, before, after)
            held: dict[int, list[str]] = {}
            for holder, split in after.held:
                held.setdefault(holder, []).append(split)
            over = frozenset[int]() if start == NOTHING_READ else before.ended_subtasks(one.parallelism)
            ends = after.ended_subtasks(one.parallelism) - over
            left = tuple(int(end.get(name, {}).get(one.uid, 0)) for name in ("backlog", "backlog_splits"))
            states = end.get("states", {}).get(one.uid, {})
            for subtask in range(one.parallelism):
                found.append(
                    SourceShare(
                        one.vertex,
                        subtask,
                        end["time_ms"],
                        tuple(ranges[subtask]),
                        subtask in ends,
                        subtask in over,
                        tuple(held.get(subtask, ())),
                        together,
                        apart,
                        0 if subtask else left[0],
                        {
                            split: states[split]
                            for split in (STREAM, *(one.split.id for one in ranges[subtask]))
                            if split in states
                        },
                        0 if subtask else left[1],
                    )
                )
        return found

    def _stage_between(self, source: SplitSource, before: SourceProgress, after: SourceProgress) -> tuple[bool, bool]:
        """Whether splits are read side by side in this epoch, and whether it begins a stage in which they are so."""
        if source.stages == 1 or not len(after.splits):
            return source.side_by_side, False
        oldest, last = min(before.oldest_open, len(after.splits) - 1), max(before.next - 1, 0)
        splits = after.splits.at((oldest, last), self._store)
        current = source.stage_of(splits[oldest].id)
        begins = before.next < after.next and (before.next == 0 or source.stage_of(splits[last].id)[0] != current[0])
        return current[1], current[1] and begins

    def progress(self, offset: dict[str, Any], uid: str) -> SourceProgress:
        """The progress of a source, according to an offset.

        Raises:
            CorruptStateError: the offset has no progress of the source, or it cannot be read.
        """
        if offset == NOTHING_READ:
            return self._restored.get(uid, SourceProgress())
        return progress_in(offset, uid, self._where)

    def _planner(self, one: CoordinatedSource, start: SourceProgress) -> EpochPlanner:
        found = self._planners.get(one.uid)
        if found is None:
            enumerator = one.source.create_enumerator(known_splits(start, self._store))
            check_made(enumerator, SplitEnumerator, one.source, "create_enumerator")
            self._enumerators.append(enumerator)
            directory = posixpath.join(self._directory, quote(one.uid, safe=""))
            enumerator.start(SplitEnumeratorContext(directory, start.state))
            if self._frozen:
                enumerator.freeze()
            limits = self._settings.source_limits(one.parallelism)
            found = EpochPlanner(one.source, enumerator, one.parallelism, limits, self._store)
            self._planners[one.uid] = found
        return found

    @contextmanager
    def _asking(self, one: CoordinatedSource, epoch: int) -> Iterator[None]:
        """Make errors inside the block name the source; an error that is not flinkish's counts as one of user code."""
        where = f"{self._where}, source uid {one.uid}"
        try:
            yield
        except FlinkishError as error:
            error.where = "; ".join(part for part in (where, error.where) if part)
            raise
        except failures_of_user_code() as error:
            raise describe_failure(error, f"enumerator of '{one.name}'; {where}", epoch) from error

    def freeze(self) -> None:
        """Plan from now on only what exists now, as if no new data came in."""
        self._frozen = True
        for enumerator in self._enumerators:
            enumerator.freeze()

    def close(self) -> None:
        """Close all enumerators, because the query has ended or an epoch has failed; later plans need new ones."""
        enumerators, self._enumerators, self._planners = self._enumerators, [], {}
        for enumerator in enumerators:
            enumerator.close()


def _checked(stand: dict[str, Any]) -> dict[str, Any]:
    """The encoded progress of a source as it will be read from the log.

    Raises:
        ProgramError: JSON cannot represent the splits or the state of the enumerator.
    """
    try:
        copy: dict[str, Any] = json.loads(json.dumps(stand, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ProgramError(
            f"the splits or the state of an enumerator cannot be stored: {message_of(error)}",
            expected="what JSON can say: None, bool, int, float, str, lists, and dicts with str as keys",
            hint="see SourceSplit.info and SplitEnumerator.snapshot_state",
        ) from error
    return copy


def offset_of(text: str | None, where: str) -> dict[str, Any]:
    """An offset of the query's log, from JSON; `NOTHING_READ` for None.

    Raises:
        CorruptStateError: the text is no offset. ``where``: the job.
    """
    try:
        return NOTHING_READ if text is None else json_as(dict[str, Any], text)
    except ValueError as error:
        raise _damaged_log(f"no offset in {text!r:.200}: {error}", where) from error


def progress_in(offset: dict[str, Any], uid: str, where: str) -> SourceProgress:
    """The progress of a source, according to an offset that is not `NOTHING_READ`.

    Raises:
        CorruptStateError: the offset has no progress of the source, or it cannot be read. ``where``: the job.
    """
    where, sources = f"{where}, source uid {uid}", offset.get("sources")
    if not isinstance(sources, dict) or uid not in sources:
        raise _damaged_log(f"no position of the source: {str(offset)[:200]}", where)
    return SourceProgress.decode(sources[uid], where)


def _damaged_log(lacks: str, where: str) -> CorruptStateError:
    return CorruptStateError(
        f"the query's log has {lacks}",
        where=where,
        hint="restore the query's log from a copy, or start the job from its last checkpoint or savepoint",
    )


def known_splits(progress: SourceProgress, store: SegmentStore) -> list[SourceSplit]:
    """All splits of a source, each with its current position; of a split that has ended only the id is kept."""
    splits = progress.splits.splits(store)
    going = {one.number: one.position for one in progress.open}
    for index, split in enumerate(splits):
        if index in going:
            splits[index] = SourceSplit(split.id, going[index], split.end, split.info)
        elif index < progress.next:
            splits[index] = SourceSplit(split.id)
    return splits
