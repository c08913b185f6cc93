"""Checks whether a reader that has stopped can go on: whether its next records still exist, and its topic is the same.

Rule: records are never skipped, and the records of a topic that was deleted and created again are never taken for those
that followed in the old one, unless the source accepts data loss; then the loss is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from flinkish.connectors.kafka.client import Cluster
from flinkish.connectors.kafka.settings import split_id
from flinkish.core.source import SourcePosition
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
