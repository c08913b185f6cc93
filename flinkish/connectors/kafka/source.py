"""``KafkaSource``: reads topics of Kafka with confluent-kafka in the workers; each partition is a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kafka.continuation import check_continued, check_named, next_offsets
from flinkish.connectors.kafka.enumerator import KafkaSplitEnumerator
from flinkish.connectors.kafka.group_offsets import commit_offsets
from flinkish.connectors.kafka.reader import KafkaSplitReader
from flinkish.connectors.kafka.settings import KafkaSourceSettings, split_id
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitReader, SplitSource

if TYPE_CHECKING:
    from flinkish.connectors.kafka.source_builder import KafkaSourceBuilder


class KafkaPartitionsSource(SplitSource):
    """The common base of `KafkaSource` and `FlinkKafkaConsumer`: reads the partitions that the settings name."""

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings

    @property
    def bounded(self) -> bool:
        return self._settings.stopping is not None

    @property
    def produced_type(self) -> TypeInformation:
        return self._settings.deserializer.get_produced_type()

    @property
    def side_by_side(self) -> bool:
        return True

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Check that Kafka can be reached and still has the records at the position; returns topic -> its id.

        Raises:
            ConnectionFailedError: no server can be reached.
            OperationError: a topic does not exist.
            FinalOperationError: records that were not read are gone, or a topic was deleted and created again, or is
                not named any more.
            SavepointError: the position is none of a Kafka source.
        """
        settings = self._settings
        offsets = next_offsets(position) if position is not None else {}
        if settings.only_topics is not False:
            unnamed = {topic for topic, _ in offsets if not settings.names(topic)}
            check_named(unnamed, all(map(settings.leaves_out, unnamed)), settings.label)
            offsets = {partition: at for partition, at in offsets.items() if partition[0] not in unnamed}
        with settings.cluster("KafkaSource") as cluster:
            topics = {topic for topic, _ in settings.partitions_of(cluster)}
            if settings.only_topics is False:
                topics.update(topic for topic, _ in offsets)
            return check_continued(cluster, offsets, known, topics, settings.fail_on_data_loss, settings.label)

    def declared_splits(self) -> tuple[str, ...]:
        """The ids of all partitions that exist now."""
        with self._settings.cluster("KafkaSource") as cluster:
            return tuple(map(split_id, self._settings.partitions_of(cluster)))

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return KafkaSplitEnumerator(self._settings, restored)

    def create_reader(self) -> SplitReader:
        return KafkaSplitReader(self._settings)

    def subtask_of(self, split_id: str, parallelism: int) -> int:
        """The subtask of Flink's KafkaSourceEnumerator: round robin over the partitions of a topic, beginning with a
        subtask that follows from the hash of the topic's name.

        >>> from flinkish.connectors.kafka.settings import KafkaSourceSettings
        >>> from flinkish.common.serialization import SimpleStringSchema
        >>> source = KafkaSource(KafkaSourceSettings("localhost:9092", SimpleStringSchema()))
        >>> [source.subtask_of(f"clicks-{partition}", 3) for partition in range(4)]
        [0, 1, 2, 0]
        """
        topic, _, partition = split_id.rpartition("-")
        first = (_java_hash(topic) * 31 & 0x7FFFFFFF) % parallelism
        return (first + int(partition)) % parallelism

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        read = {split: at for split, at in positions.items() if not self._settings.leaves_out(split.rpartition("-")[0])}
        if self._settings.commits_offsets and read:
            commit_offsets(self._settings, read)


class KafkaSource(KafkaPartitionsSource):
    """Reads topics of Kafka. The timestamps of the records are Kafka's. Made by :meth:`builder`. Needs confluent-kafka
    (the extra ``kafka``) on the driver and the executors.

    >>> from flinkish.common.serialization import SimpleStringSchema
    >>> source = (KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("clicks")
    ...     .set_value_only_deserializer(SimpleStringSchema()).build())
    >>> source.bounded
    False

    With a value-only deserializer, a Kafka record with a null value (a tombstone) is no record of the stream. Offsets
    are kept in the job's checkpoint; those of finished epochs are also committed to the consumer group, if there is one
    (``commit.offsets.on.checkpoint``), for monitoring and for ``committed_offsets()`` of another job. If Kafka deleted
    records before they were read, the job fails, unless ``set_fail_on_data_loss(False)``.

    The source looks for new partitions every ``partition.discovery.interval.ms`` (five minutes; 0 or less: only at the
    start) and reads them from their beginning. With ``set_bounded`` the stopping offsets are looked up when the source
    starts for the first time and hold over all restarts: ``latest()`` is what was there then. Restore: exact, from the
    offsets of the savepoint.

    Raises (when the job starts, or goes on):
        FinalOperationError: records that were not read are gone, or a topic was deleted and created again.
        ConnectionFailedError: no server can be reached; checked before the query starts.
        OperationError: a topic does not exist.
    """

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        from flinkish.connectors.kafka.source_builder import KafkaSourceBuilder

        return KafkaSourceBuilder()


def _java_hash(text: str) -> int:
    """Java's ``String.hashCode`` of the text.

    >>> _java_hash("hello"), _java_hash("polygenelubricants")
    (99162322, -2147483648)
    """
    found = 0
    for character in text:
        found = (found * 31 + ord(character)) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found
