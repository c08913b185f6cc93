"""Watermark alignment: sources and splits that are ahead of the others of their group are held back (Flink's FLIP-182).

Rule: a stream of a group reads in the next epoch only if its watermark is at most ``max_drift_ms`` ahead of the lowest
watermark of the group, and then about as many records as bring it to that bound. The stream with the lowest watermark
is never held back, so there is always one that may proceed. A *stream* is a unit with one watermark: a split that is
read side by side with others, or a subtask that reads one split after the other.

Which records lie before the bound is not known before they are read. The number of records that a stream may read is
estimated from its pace in the last epoch in which it read: at most twice the number that it read then, and at least a
batch. So if time passes evenly from record to record, a group drifts apart by ``max_drift_ms`` and the time that a
batch spans.

The decisions are part of the planned offset, and so are the watermarks that they are based on, so a replay decides
nothing anew. This module imports neither pyspark nor pandas.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flinkish.core.source import SplitSource
from flinkish.errors import CorruptStateError
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory, WatermarkAlignment

_LOG = logging.getLogger("flinkish.JobManager")

#: source uid -> stream -> watermark in ms
Watermarks = Mapping[str, Mapping[str, int]]
#: The number of records that a stream may read if it is not bounded.
UNLIMITED = math.inf


class SourceStream(NamedTuple):
    """A stream of a source right before an epoch is planned.

    Args:
        name: id of the split, or number of the subtask.
        readable: whether there are records that could be read now.
    """

    name: str
    readable: bool


class StreamProgress(NamedTuple):
    """The progress of a stream, as the offset of an epoch stores it.

    Args:
        watermark_ms: the watermark that it had reached before the epoch; None if it had none yet.
        records: estimated number of records that the epoch reads of it.
        pace: (records, ms by which the watermark rose) of the last earlier epoch that read it; None if not known.
        active_ms: processing time at which it last had records.
    """

    watermark_ms: int | None
    records: int
    pace: tuple[int, int] | None
    active_ms: int

    def reached(self, watermark_ms: int | None) -> StreamProgress:
        """The progress at the end of the epoch, given the watermark that the tasks have reported, or None."""
        before = self.watermark_ms
        now = before if watermark_ms is None else max(watermark_ms, watermark_ms if before is None else before)
        pace = self.pace
        if self.records:
            pace = None if before is None and now is not None else (self.records, (now or 0) - (before or 0))
        return StreamProgress(now, 0, pace, self.active_ms)

    def allowed(self, bound_ms: float, smallest: int) -> float:
        """How many records the stream may read if its watermark may rise up to ``bound_ms``: at least ``smallest``, or
        0 if it is beyond the bound."""
        if self.watermark_ms is not None and self.watermark_ms > bound_ms:
            return 0
        if self.pace is None:
            return smallest
        records, gained_ms = self.pace
        most: float = 2 * records
        if gained_ms > 0 and self.watermark_ms is not None:
            most = min(most, (bound_ms - self.watermark_ms) * records / gained_ms)
        return max(smallest, most)


@dataclass(frozen=True)
class _AlignedSource:
    uid: str
    name: str
    alignment: WatermarkAlignment
    idle_timeout_ms: int | None


class AlignmentCoordinator:
    """Decides how many records each stream of the aligned sources of a job may read in the next epoch.

    Args:
        job: the job graph.
        smallest: the least number of records that a stream may read if it is not held back.
    """

    def __init__(self, job: JobDescriptor, smallest: int) -> None:
        self._smallest = smallest
        self._sources: dict[str, _AlignedSource] = {}
        self._told: set[tuple[str, str]] = set()
        for vertex in job.vertices:
            factory = _aligned_factory(vertex)
            if factory is not None and factory.alignment is not None:
                one = _AlignedSource(vertex.head.uid, vertex.name, factory.alignment, factory.idle_timeout_ms)
                self._sources[one.uid] = one

    def __bool__(self) -> bool:
        """Whether any source is aligned."""
        return bool(self._sources)

    def __contains__(self, uid: str) -> bool:
        return uid in self._sources

    def progress(
        self, states: Mapping[str, Any], reached: Watermarks, streams: Mapping[str, Sequence[SourceStream]], now_ms: int
    ) -> dict[str, dict[str, StreamProgress]]:
        """The progress of all streams, as source uid -> stream -> progress.

        Args:
            states: the progress in the last offset, as encoded by `encode`.
            reached: the watermarks that the tasks have reported since.
            streams: the existing streams of each source.
            now_ms: processing time of the epoch that is being planned.
        """
        found: dict[str, dict[str, StreamProgress]] = {}
        for uid in self._sources:
            before = _decode(states.get(uid, {}), uid)
            known = {name: one.reached(reached.get(uid, {}).get(name)) for name, one in before.items()}
            found[uid] = {}
            for stream in streams[uid]:
                one = known.get(stream.name, StreamProgress(None, 0, None, now_ms))
                found[uid][stream.name] = one._replace(active_ms=now_ms) if stream.readable else one
        return found

    def allowances(
        self,
        progress: Mapping[str, Mapping[str, StreamProgress]],
        streams: Mapping[str, Sequence[SourceStream]],
        now_ms: int,
        frozen: bool,
    ) -> dict[str, dict[str, float]]:
        """How many records each stream may read, as source uid -> stream -> number; 0 if the stream is held back.

        Args:
            progress: the progress of all streams.
            streams: the existing streams of each source.
            now_ms: processing time of the epoch that is being planned.
            frozen: whether no new records will come, so that a stream without records holds no other one back.
        """
        lowest: dict[str, float] = {}
        for uid, one in self._sources.items():
            group = one.alignment.group
            for stream in streams[uid]:
                at = progress[uid][stream.name]
                if stream.readable or not (frozen or _is_idle(at, one.idle_timeout_ms, now_ms)):
                    watermark = -math.inf if at.watermark_ms is None else at.watermark_ms
                    lowest[group] = min(watermark, lowest.get(group, math.inf))
        found = {}
        for uid, one in self._sources.items():
            bound_ms = lowest.get(one.alignment.group, math.inf) + one.alignment.max_drift_ms
            found[uid] = {name: at.allowed(bound_ms, self._smallest) for name, at in progress[uid].items()}
        self._tell(found, progress, streams, lowest)
        return found

    def _tell(
        self,
        allowed: Mapping[str, Mapping[str, float]],
        progress: Mapping[str, Mapping[str, StreamProgress]],
        streams: Mapping[str, Sequence[SourceStream]],
        lowest: Mapping[str, float],
    ) -> None:
        """Warn, once per stream, if all streams of a group that have records wait for one without records and without
        an idle timeout, because the job then looks as if it hangs."""
        for group, lowest_ms in lowest.items():
            members = [
                (one, stream)
                for uid, one in self._sources.items()
                if one.alignment.group == group
                for stream in streams[uid]
            ]
            readable = [allowed[one.uid][stream.name] for one, stream in members if stream.readable]
            if not readable or any(readable):
                continue
            for one, stream in members:
                at_ms = progress[one.uid][stream.name].watermark_ms
                waited_for = not stream.readable and (-math.inf if at_ms is None else at_ms) == lowest_ms
                if waited_for and one.idle_timeout_ms is None and (one.uid, stream.name) not in self._told:
                    self._told.add((one.uid, stream.name))
                    _LOG.warning(
                        "all sources of the watermark group '%s' that have records wait for '%s' of source '%s' (uid"
                        " %s), which has none; WatermarkStrategy.with_idleness says how long they are to wait",
                        group,
                        stream.name,
                        one.name,
                        one.uid,
                    )

    @staticmethod
    def before(states: Mapping[str, Any]) -> dict[str, Any]:
        """The progress right before an epoch that was given up, as encoded by `encode`, from the progress in the offset
        of that epoch: its streams have read nothing in it."""
        return {
            uid: {name: list(one._replace(records=0)) for name, one in _decode(streams, uid).items()}
            for uid, streams in states.items()
        }

    @staticmethod
    def encode(
        progress: Mapping[str, Mapping[str, StreamProgress]], read: Mapping[str, Mapping[str, float]]
    ) -> dict[str, Any]:
        """Encode the progress for the offset. ``read`` says how many records the planned epoch reads of each stream."""
        return {
            uid: {
                name: list(one._replace(records=math.ceil(read[uid].get(name, 0))))
                for name, one in sorted(streams.items())
            }
            for uid, streams in sorted(progress.items())
        }


def _is_idle(at: StreamProgress, timeout_ms: int | None, now_ms: int) -> bool:
    return timeout_ms is not None and now_ms - at.active_ms >= timeout_ms


def _decode(value: Any, uid: str) -> dict[str, StreamProgress]:
    try:
        return {
            str(name): StreamProgress(watermark_ms, int(records), None if pace is None else tuple(pace), int(active_ms))
            for name, (watermark_ms, records, pace, active_ms) in value.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptStateError(
            f"the watermarks of a source cannot be read: {error!r} in {str(value)[:200]}",
            where=f"source uid {uid}",
            hint="restore the query's log from a copy, or start the job from its last checkpoint or savepoint",
        ) from error


def _aligned_factory(vertex: VertexDescriptor) -> TimestampsAndWatermarksFactory | None:
    """The last watermark generator in a source's chain that has an alignment group; None if there is none."""
    if not isinstance(vertex.source, SplitSource):
        return None
    found = [operator.factory for operator in vertex.operators]
    aligned = [one for one in found if isinstance(one, TimestampsAndWatermarksFactory) and one.alignment is not None]
    return aligned[-1] if aligned else None


def keeps_watermarks(vertex: VertexDescriptor) -> bool:
    """Whether the watermarks of a source's splits go on from epoch to epoch in its task: functions of its chain can see
    them, or a generator of the program makes them. Elsewhere the receivers' memory is enough."""
    found = [operator.factory for operator in vertex.operators]
    return vertex.source is not None and any(
        one.watermark_sensitive or isinstance(one, TimestampsAndWatermarksFactory) and one.make_generator is not None
        for one in found
    )


@dataclass(frozen=True)
class Reached:
    """What the tasks of the sources had reached at the end of an epoch, for the plan of the next one.

    Args:
        watermarks: the watermarks of the streams of aligned sources that were read in the epoch.
        states: source uid -> split -> what is known of it (`TaskReport.split_states`), whenever it was read last.
    """

    watermarks: dict[str, dict[str, int]] = field(default_factory=dict)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything that the plan of the next epoch must know."""
        return bool(self.watermarks or self.states)

    def behind(self, before: Reached) -> Reached:
        """This, with what was known before this epoch of splits that it has not read; splits that have ended are
        forgotten."""
        both = {
            uid: {**before.states.get(uid, {}), **self.states.get(uid, {})} for uid in {*before.states, *self.states}
        }
        going = {uid: {split: state for split, state in of.items() if state is not None} for uid, of in both.items()}
        return Reached(self.watermarks, going)


def reached_in(job: JobDescriptor, tasks: Sequence[TaskReport]) -> Reached:
    """What the tasks of the sources have reached in an epoch, according to their reports."""
    states: dict[str, dict[str, Any]] = {}
    for task in tasks:
        of_source = states.setdefault(job.vertex(task.vertex).head.uid, {}) if task.split_states else {}
        for split, state in task.split_states.items():
            # several readers of a source that Spark reads are one split, whose watermark is the lowest one
            other = of_source.get(split)
            if other is None or state is None or state[0] < other[0]:
                of_source[split] = state
    return Reached(watermarks_of(job, tasks), states)


def watermarks_of(job: JobDescriptor, tasks: Sequence[TaskReport]) -> dict[str, dict[str, int]]:
    """The watermarks that the streams of aligned sources have reached, according to the reports of an epoch's tasks."""
    found: dict[str, dict[str, int]] = {}
    for task in tasks:
        if task.stream_watermarks:
            found.setdefault(job.vertex(task.vertex).head.uid, {}).update(task.stream_watermarks)
    return found
