"""``KafkaSource``: each partition is a split, read with confluent-kafka in the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kafka import continuation, group_offsets
from flinkish.connectors.kafka.client import check_reachable
from flinkish.connectors.kafka.enumerator import KafkaSplitEnumerator
from flinkish.connectors.kafka.reader import KafkaSplitReader
from flinkish.connectors.kafka.settings import KafkaSourceSettings, split_id
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitReader, SplitSource

if TYPE_CHECKING:
    from flinkish.connectors.kafka.source_builder import KafkaSourceBuilder


class KafkaPartitionsSource(SplitSource):
    """Reads partitions as the settings say; what `KafkaSource` and `FlinkKafkaConsumer` have in common."""

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
        """Topic -> its id."""
        settings = self._settings
        offsets = continuation.next_offsets(position) if position is not None else {}
        offsets = {partition: at for partition, at in offsets.items() if not settings.leaves_out(partition[0])}
        check_reachable(settings.bootstrap_servers, settings.label)
        with settings.cluster("KafkaSource") as cluster:
            topics = {topic for topic, _ in settings.partitions_of(cluster)}
            if settings.only_topics is False:
                topics.update(topic for topic, _ in offsets)
            return continuation.check(cluster, offsets, known, topics, settings.fail_on_data_loss, settings.label)

    def declared_splits(self) -> tuple[str, ...]:
        """All partitions."""
        check_reachable(self._settings.bootstrap_servers, self._settings.label)
        with self._settings.cluster("KafkaSource") as cluster:
            return tuple(map(split_id, self._settings.partitions_of(cluster)))

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return KafkaSplitEnumerator(self._settings, restored)

    def create_reader(self) -> SplitReader:
        return KafkaSplitReader(self._settings)

    def subtask_of(self, split_id: str, parallelism: int) -> int:
        """As Flink's KafkaSourceEnumerator: the partitions of a topic go round, from a subtask that its name decides.

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
        if self._settings.commits_offsets and positions:
            group_offsets.commit(self._settings, positions)


class KafkaSource(KafkaPartitionsSource):
    """The values of Kafka's records, with Kafka's timestamps. Made by :meth:`builder`. Needs confluent-kafka (the extra
    ``kafka``) on the driver and the executors.

    >>> from flinkish.common.serialization import SimpleStringSchema
    >>> source = (KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("clicks")
    ...     .set_value_only_deserializer(SimpleStringSchema()).build())
    >>> source.bounded
    False

    A record with a null value (a tombstone) is no record of the stream. Offsets live in the job's checkpoint; those of
    finished epochs are also committed to the consumer group, if there is one (``commit.offsets.on.checkpoint``), for
    monitoring and for ``committed_offsets()`` of another job. Records that Kafka deleted before they were read end the
    job, unless ``set_fail_on_data_loss(False)``.

    New partitions are looked for every ``partition.discovery.interval.ms`` (five minutes; 0 or less: only at the
    start) and read from their beginning. With ``set_bounded`` the stopping offsets are looked up when the source starts
    for the first time and hold over all restarts: ``latest()`` is what was there then. Restore: exact, from the offsets
    of the savepoint.

    Raises (when it starts, or goes on):
        FinalOperationError: records are gone that were not read, or a topic was made anew.
        ConnectionFailedError: no server can be reached, found out before the query starts.
        OperationError: a topic does not exist.
    """

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        from flinkish.connectors.kafka.source_builder import KafkaSourceBuilder

        return KafkaSourceBuilder()


def _java_hash(text: str) -> int:
    """Java's String.hashCode.

    >>> _java_hash("hello"), _java_hash("polygenelubricants")
    (99162322, -2147483648)
    """
    found = 0
    for character in text:
        found = (found * 31 + ord(character)) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found
