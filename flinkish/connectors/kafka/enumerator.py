"""The enumerator of the Kafka source: which partitions are read, from which offsets, how far and at which cost; and
whether a reader that has stopped can go on: whether its next records still exist, and its topic is the same.

Rule: the starting and stopping offsets, which decide which records belong to a bounded source, are looked up once, when
a partition is discovered, and are part of the split. The engine keeps the split, so that a restart reads the same
records.

Rule: records are never skipped, and the records of a topic that was deleted and created again are never taken for those
that followed in the old one, unless the source accepts data loss; then the loss is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from flinkish.connectors.kafka.client import Cluster, driver, new_consumer
from flinkish.connectors.kafka.settings import KafkaSourceSettings, Partition, split_id
from flinkish.core.source import SourcePosition, SourceSplit, SplitEnumerator, SplitEnumeratorContext, UnitCost
from flinkish.errors import FinalOperationError
from flinkish.storage.sealed import typed

_reader_log = logging.getLogger("flinkish.KafkaPartitionSplitReader")

Offsets = Mapping[tuple[str, int], int]


def check_continued(
    cluster: Cluster, offsets: Offsets, known: Mapping[str, str], topics: set[str], fail: bool, where: str
) -> dict[str, str]:
    """Check that reading can go on at these offsets, and return the current ids of the topics.

    Args:
        offsets: (topic, partition) -> the next offset to read.
        known: topic -> the id that it had when the job was started before.
        topics: all topics that are read; each of them exists.
        fail: whether to raise if records are lost; otherwise the loss is logged as a warning.
        where: the source, for messages.

    Raises:
        FinalOperationError: records that were not read are gone, or a topic is another one than before.
    """
    ids = cluster.topic_ids(sorted(topics))
    there = [partition for partition in cluster.partitions(sorted(topics), None) if partition in offsets]
    found = renewed(known, ids) + gone(offsets, cluster.kept(there))
    if found and fail:
        raise FinalOperationError(
            "; ".join(found),
            where=where,
            expected="the topic as the job has left it, with all records that it has not read yet",
            hint="start the job in a new job directory (from a savepoint of before, or from the earliest offsets); or "
            "set_fail_on_data_loss(False) to go on here without those records",
        )
    for sentence in found:
        _reader_log.warning("%s; the job goes on without these records [%s]", sentence, where)
    return ids


def check_named(unnamed: Collection[str], left_out: bool, where: str) -> None:
    """Refuse a source that does not name these topics, which the job has read, any more; a source that leaves them out
    logs a warning.

    Raises:
        FinalOperationError: there is such a topic, and it is not left out.
    """
    if not unnamed:
        return
    said = f"the job has read topics that its source does not name any more: {', '.join(sorted(unnamed))}"
    if not left_out:
        raise FinalOperationError(
            said,
            where=where,
            expected="the topics as before, or more of them",
            hint="name them again; or set_fail_on_data_loss(False) to leave them out; or start the job in a new job "
            "directory",
        )
    _reader_log.warning("%s; they are left out [%s]", said, where)


@dataclass(frozen=True)
class _Partition:
    """What the split of a partition knows besides its position."""

    topic: str
    partition: int


def next_offsets(position: str) -> dict[tuple[str, int], int]:
    """The next offset of each partition that is not read to its end, parsed from a source's position (JSON).

    Raises:
        SavepointError: the text is no position of a Kafka source.

    >>> split = '["a-0", 5, null, {"topic": "a", "partition": 0}]'
    >>> next_offsets('{"complete": false, "ended": [], "splits": [' + split + "]}")
    {('a', 0): 5}
    """
    found = {}
    for name, offset, end, info in SourcePosition.decode(position, "KafkaSource").splits:
        try:
            read = typed(_Partition, info)
            if name != split_id((read.topic, read.partition)) or offset < 0:
                raise ValueError("its name or its offset is not that of its partition")
        except ValueError as error:
            raise SourcePosition.refusal([name, offset, end, info], "KafkaSource", error) from None
        if end is None or offset < end:
            found[read.topic, read.partition] = offset
    return found


def renewed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A sentence for each topic whose id has changed. Both arguments are topic -> id.

    >>> renewed({"clicks": "aa", "views": "bb"}, {"clicks": "cc", "views": "bb", "new": "dd"})
    ["the topic 'clicks' is not the one that the job has read: it was deleted and made anew (id aa, now cc)"]
    """
    return [
        f"the topic '{topic}' is not the one that the job has read: it was deleted and made anew "
        f"(id {before[topic]}, now {now[topic]})"
        for topic in sorted(before)
        if topic in now and now[topic] != before[topic]
    ]


def gone(offsets: Offsets, kept: Mapping[tuple[str, int], tuple[int, int]]) -> list[str]:
    """A sentence for each partition that lacks the records at its next offset. ``kept`` is partition -> (first offset
    that still exists, offset of the next record to be written).

    >>> gone({("a", 0): 5, ("a", 1): 5}, {("a", 0): (5, 5), ("a", 1): (8, 9)})
    ["records of topic 'a', partition 1 were deleted before they were read: offsets 5 to 7 (the first one there is 8)"]
    """
    found = []
    for (topic, partition), offset in sorted(offsets.items()):
        where = f"topic '{topic}', partition {partition}"
        first, end = kept.get((topic, partition), (None, None))
        if first is None or end is None:
            found.append(f"{where} is not there any more; the job has read it up to offset {offset}")
        elif offset < first:
            found.append(
                f"records of {where} were deleted before they were read: offsets {offset} to {first - 1} "
                f"(the first one there is {first})"
            )
        elif offset > end:
            found.append(
                f"{where} ends before offset {end}, but the job has read up to offset {offset}: records were taken away"
            )
    return found


_log = logging.getLogger("flinkish.KafkaSourceEnumerator")

#: number of samples that are taken for one plan, one after the other: each is a request to a broker
SAMPLES_PER_PLAN = 8
#: number of samples that are stored with the positions, for the next enumerator
_STORED_SAMPLES = 64
#: number of offsets after which the record size of a partition is sampled again
_SAMPLE_HOLDS_OFFSETS = 1_000_000
#: so few records cannot be too much for an epoch, and are not sampled
_NO_SAMPLE_RECORDS = 100
_SAMPLE_RECORDS = 100
_SAMPLE_BYTES = 64 * 1024
_SAMPLE_TIMEOUT_S = 2.0
#: the assumed size of a record until the first sample
_BYTES_PER_RECORD = 1024.0


def partition_of(split: SourceSplit) -> Partition:
    """The partition (topic, number) of a split."""
    return split.info["topic"], split.info["partition"]


class RecordSizes:
    """The estimated bytes per offset of each partition, from samples of its records.

    Rule: a plan takes at most `SAMPLES_PER_PLAN` samples, so that the first plan of a source with thousands of
    partitions takes as long as any other. Partitions without a sample count as those of the same topic; those that had
    to wait are sampled first in the next plan.

    Args:
        sample: reads records from an offset of a partition on, and returns their mean size; None if there are none.
    """

    def __init__(self, sample: Callable[[Partition, int], float | None]) -> None:
        self._sample = sample
        # partition -> (offset at which it was sampled, bytes per offset), in the order of the samples
        self._samples: dict[Partition, tuple[int, float]] = {}
        # topic -> the largest bytes per offset of its samples, as of the begin of the plan or later
        self._largest: dict[str, float] = {}
        # partitions that wait for a sample, in order; those of them that are sampled in this plan; and what it has left
        self._waiting: dict[Partition, None] = {}
        self._turn: set[Partition] = set()
        self._free = SAMPLES_PER_PLAN

    def begin_plan(self) -> None:
        """Begin a plan, which may take samples again."""
        for partition in self._turn:
            # a partition whose turn it was, and that was not asked for, does not hold up the others
            self._waiting.pop(partition, None)
        self._turn = set(islice(self._waiting, SAMPLES_PER_PLAN))
        self._free = SAMPLES_PER_PLAN - len(self._turn)
        self._largest = {}
        for (topic, _), (_, size) in self._samples.items():
            self._largest[topic] = max(size, self._largest.get(topic, 0.0))

    def size_at(self, partition: Partition, position: int, has_records: Callable[[], bool]) -> float:
        """The bytes per offset of a partition from a position on. ``has_records`` says whether there are enough records
        for a sample to be worth a request."""
        sampled_at, size = self._samples.get(partition, (None, 0.0))
        fresh = sampled_at is not None and 0 <= position - sampled_at < _SAMPLE_HOLDS_OFFSETS
        if not fresh and has_records() and self._may_sample(partition):
            size = self._sample(partition, position) or size or self._usual_size(partition[0])
            self._samples.pop(partition, None)
            self._samples[partition] = (position, size)
            self._largest[partition[0]] = max(size, self._largest.get(partition[0], 0.0))
        return size or self._usual_size(partition[0])

    def _may_sample(self, partition: Partition) -> bool:
        if partition in self._turn:
            self._turn.remove(partition)
            del self._waiting[partition]
            return True
        if self._free:
            self._free -= 1
            self._waiting.pop(partition, None)
            return True
        self._waiting[partition] = None
        return False

    def _usual_size(self, topic: str) -> float:
        """The size to expect of a partition without a sample: rather too large than too small."""
        return self._largest.get(topic) or max(self._largest.values(), default=_BYTES_PER_RECORD)

    def newest(self) -> list[list[Any]]:
        """The newest samples as (topic, partition, offset, bytes per offset), in JSON's types."""
        first = max(0, len(self._samples) - _STORED_SAMPLES)
        return [[*partition, *sample] for partition, sample in islice(self._samples.items(), first, None)]

    def restore(self, samples: list[list[Any]]) -> None:
        """Take over the result of `newest` of an earlier enumerator."""
        self._samples = {(str(topic), int(number)): (int(at), float(size)) for topic, number, at, size in samples}


class KafkaSplitEnumerator(SplitEnumerator):
    """Discovers the partitions of a Kafka source, each of which is a split; positions are offsets.

    Rule: however many partitions there are, a plan (the calls up to `snapshot_state`) asks for the end offsets of all
    partitions at once, and only once.

    Args:
        restored: the splits of the savepoint that the job was started from.
        clock: gives seconds and never goes back.
        sample: as for `RecordSizes`; None: records are read from the brokers.
    """

    def __init__(
        self,
        settings: KafkaSourceSettings,
        restored: Sequence[SourceSplit],
        clock: Callable[[], float] = time.monotonic,
        sample: Callable[[Partition, int], float | None] | None = None,
    ) -> None:
        self._settings = settings
        self._restored = {split.id for split in restored}
        self._clock = clock
        self._opened: Cluster | None = None
        self._looked = False
        self._look_again_at = 0.0
        # the partitions that are read; a split that has ended has no info any more
        going = [split for split in restored if split.info is not None]
        going = [split for split in going if not settings.leaves_out(partition_of(split)[0])]
        self._read: dict[Partition, None] = dict.fromkeys(map(partition_of, going))
        # the end offset of each partition in this plan, {} until they are asked for; and those at the time of `freeze`
        self._ends: dict[Partition, int] = {}
        self._frozen: dict[Partition, int] | None = None
        # split id -> stopping offset, for splits from a savepoint of an unbounded source, if this source is bounded
        self._late_stops: dict[str, int] = {}
        self._endless = [split for split in going if split.end is None]
        self._warned: set[Partition] = set()
        self._sampler: Any = None
        self._sizes = RecordSizes(sample or self._sample)

    def start(self, context: SplitEnumeratorContext) -> None:
        state = context.state or {}
        # earlier versions stored the stopping offsets alone; the id of a split is never one of these keys
        self._late_stops = dict(state.get("stops", {}) if "samples" in state else state)
        self._sizes.restore(state.get("samples", []))
        self._begin_plan()

    def snapshot_state(self) -> Any:
        stops, samples = dict(sorted(self._late_stops.items())), self._sizes.newest()
        self._begin_plan()
        return {"samples": samples, "stops": stops} if samples or stops else None

    def _begin_plan(self) -> None:
        self._ends = {}
        self._sizes.begin_plan()

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        now = self._clock()
        self._ends = {}
        once = self.complete or self._frozen is not None or self._settings.discovery_interval_ms <= 0
        if self._looked and (once or now < self._look_again_at):
            return ()
        first = not self._looked and not known and not self._restored
        self._looked = True
        self._look_again_at = now + self._settings.discovery_interval_ms / 1000
        if self._settings.stopping is not None and set(known) - self._restored:
            # a bounded source that was started before: its partitions were decided then
            return ()
        partitions = self._settings.partitions_of(self._cluster)
        self._read.update(dict.fromkeys(partitions))
        new = [partition for partition in partitions if split_id(partition) not in known]
        return self._splits(new, first) if new else ()

    @property
    def complete(self) -> bool:
        # the partitions of an unbounded source are never complete: the next start looks again in any case
        return self._looked and self._settings.stopping is not None

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        partition = partition_of(split)
        if self._settings.leaves_out(partition[0]):
            return position, True
        stop = self._stop_of(split)
        if stop is not None and position >= stop:
            return position, True
        end = self._end(partition)
        if end < position:
            return position, self._taken_away(partition, position) and stop is not None
        if stop is not None and end >= stop:
            return stop, True
        return end, False

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        partition = partition_of(split)
        if self._settings.leaves_out(partition[0]):
            return UnitCost(1.0, 0.0)
        size = self._sizes.size_at(partition, position, lambda: self._end(partition) - position > _NO_SAMPLE_RECORDS)
        return UnitCost(1.0, size)

    def freeze(self) -> None:
        cluster = self._cluster
        self._frozen = cluster.next_offsets(self._settings.partitions_of(cluster), self._settings.read_committed)

    def close(self) -> None:
        for client in (self._opened, self._sampler):
            if client is not None:
                client.close()
        self._opened = self._sampler = None

    def _splits(self, new: list[Partition], first: bool) -> list[SourceSplit]:
        settings = self._settings
        # as in Flink, partitions that are discovered later are read from their beginning, wherever the others began
        starts = (
            settings.starting.starts(self._cluster, new, settings.read_committed)
            if first
            else self._cluster.first_offsets(new)
        )
        stops = self._stops(new)
        return [
            SourceSplit(
                split_id(partition),
                starts[partition],
                max(starts[partition], stops[partition]) if partition in stops else None,
                {"topic": partition[0], "partition": partition[1]},
            )
            for partition in new
        ]

    def _stops(self, partitions: list[Partition]) -> dict[Partition, int]:
        if self._settings.stopping is None:
            return {}
        return self._settings.stopping.resolve(self._cluster, partitions, self._settings.read_committed)

    def _stop_of(self, split: SourceSplit) -> int | None:
        if split.end is not None or self._settings.stopping is None:
            return split.end
        if split.id not in self._late_stops:
            missing = {one.id: one for one in (*self._endless, split) if one.id not in self._late_stops}
            stops = self._stops([partition_of(one) for one in missing.values()])
            self._late_stops.update((name, stops[partition_of(one)]) for name, one in missing.items())
        return self._late_stops[split.id]

    def _end(self, partition: Partition) -> int:
        if self._frozen is not None and partition in self._frozen:
            return self._frozen[partition]
        if partition not in self._ends:
            self._read[partition] = None
            asked = [partition] if self._ends else [*self._read]
            self._ends.update(self._cluster.next_offsets(asked, self._settings.read_committed))
        return self._ends[partition]

    def _taken_away(self, partition: Partition, position: int) -> bool:
        """Whether a partition whose end is before the position has lost records. It has lost none if it only ends
        before an open transaction whose records were read earlier as uncommitted ones.

        Raises:
            FinalOperationError: records are lost, and the source fails on data loss.
        """
        kept = self._cluster.kept([partition])
        first, end = kept[partition]
        if end >= position:
            return False
        (said,) = gone({partition: position}, {partition: (min(first, position), end)})
        if self._settings.fail_on_data_loss:
            raise FinalOperationError(
                said,
                where=self._settings.label,
                expected="the topic as the job has left it",
                hint="start the job in a new job directory; or set_fail_on_data_loss(False) to go on without them",
            )
        if partition not in self._warned:
            self._warned.add(partition)
            _log.warning("%s; the job goes on without these records [%s]", said, self._settings.label)
        return True

    def _sample(self, partition: Partition, position: int) -> float | None:
        """The mean size in bytes of some records from the position on; None if there are none, or no broker answers."""
        kafka = driver("KafkaSource")
        try:
            if self._sampler is None:
                self._sampler = new_consumer(self._sampler_settings(), self._settings.label)
            self._sampler.assign([kafka.TopicPartition(*partition, position)])
            sizes = self._sampled_sizes(self._clock() + _SAMPLE_TIMEOUT_S)
            self._sampler.unassign()
        except kafka.KafkaException as error:
            _log.warning("no sample of %s could be read: %s [%s]", split_id(partition), error, self._settings.label)
            return None
        return sum(sizes) / len(sizes) if sizes else None

    def _sampled_sizes(self, deadline: float) -> list[int]:
        sizes: list[int] = []
        while len(sizes) < _SAMPLE_RECORDS and sum(sizes) < _SAMPLE_BYTES and self._clock() < deadline:
            message = self._sampler.poll(deadline - self._clock())
            if message is None or message.error() is not None:
                break
            sizes.append(len(message.value() or b"") + len(message.key() or b""))
        return sizes

    def _sampler_settings(self) -> dict[str, Any]:
        all_settings = self._settings.consumer_settings("sampler")
        # the properties that decide how much is fetched are meant for the readers
        kept = {key: value for key, value in all_settings.items() if not key.startswith(("fetch.", "queued.", "max."))}
        return {
            **kept,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": _SAMPLE_BYTES,
            "queued.min.messages": 1,
            # as for readers: librdkafka asks for the next batch of a partition a second after the last one by default
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 1024,
        }

    @property
    def _cluster(self) -> Cluster:
        if self._opened is None:
            self._opened = self._settings.cluster("KafkaSource")
        return self._opened
