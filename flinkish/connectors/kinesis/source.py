"""``FlinkKinesisConsumer``: reads streams of Kinesis with boto3 in the workers; each shard is a split."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flinkish.common.no_effect import warn_without_effect
from flinkish.common.serialization import DeserializationSchema
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.kinesis.client import KinesisDeserializationSchema, driver
from flinkish.connectors.kinesis.shards import (
    KinesisSettings,
    KinesisSplitEnumerator,
    KinesisSplitReader,
    stream_and_shard,
)
from flinkish.core.source import SourcePosition, SourceSplit, SplitEnumerator, SplitReader, SplitSource
from flinkish.errors import ArgumentTypeError, ConfigurationError, FinalOperationError
from flinkish.storage.sealed import typed

_log = logging.getLogger("flinkish.FlinkKinesisConsumer")


class FlinkKinesisConsumer(SplitSource):
    """An unbounded source of Kinesis streams, for ``env.add_source`` and ``env.from_source``. Needs boto3 on the driver
    and the executors. The timestamps of the records are Kinesis' times of arrival; each shard has a watermark of its
    own.

    State is exactly-once: positions are sequence numbers in the job's checkpoint. When shards are split or merged, a
    new one is read as soon as those that it comes from have been read to their ends, so the records of a partition key
    stay in order. Aggregates of the Kinesis Producer Library are taken apart.

    Args:
        streams: the name of a stream, or several names.
        deserializer: deserializes the data of the records, or (`KinesisDeserializationSchema`) whole records.
        config_props: properties of Flink's connector: ``aws.region``, ``aws.endpoint``, ``aws.credentials.provider``
            and its own ones, ``flink.stream.initpos`` (LATEST, TRIM_HORIZON, AT_TIMESTAMP),
            ``flink.stream.initpos.timestamp``, ``flink.shard.discovery.intervalmillis``,
            ``flink.shard.getrecords.maxrecordcount``, ``flink.shard.getrecords.intervalmillis``.

    Example::

        properties = {"aws.region": "eu-west-1", "flink.stream.initpos": "TRIM_HORIZON"}
        clicks = env.add_source(FlinkKinesisConsumer("clicks", SimpleStringSchema(), properties))

    Raises:
        ConfigurationError: no stream, or a property that is unknown or cannot be read.
    """

    def __init__(
        self,
        streams: str | Sequence[str],
        deserializer: DeserializationSchema | KinesisDeserializationSchema,
        config_props: Mapping[str, Any],
    ) -> None:
        if not isinstance(deserializer, (DeserializationSchema, KinesisDeserializationSchema)):
            raise ArgumentTypeError(
                f"the deserializer is {type(deserializer).__name__}",
                where="FlinkKinesisConsumer",
                expected="a DeserializationSchema or a KinesisDeserializationSchema",
            )
        names = (streams,) if isinstance(streams, str) else tuple(streams)
        if not names or not all(names) or len(set(names)) < len(names):
            raise ConfigurationError(
                f"the streams are {list(names)}", where="FlinkKinesisConsumer", expected="names, each of them once"
            )
        driver("FlinkKinesisConsumer")
        self._settings = KinesisSettings(names, deserializer, {key: str(value) for key, value in config_props.items()})
        self._settings.check()

    def set_shard_assigner(self, shard_assigner: KinesisShardAssigner) -> FlinkKinesisConsumer:
        """Has no effect: shards are given to the subtasks in turns."""
        warn_without_effect("set_shard_assigner", "shards are given to the subtasks in turns")
        return self

    def set_periodic_watermark_assigner(self, periodic_watermark_assigner: Any) -> FlinkKinesisConsumer:
        """Has no effect: a WatermarkStrategy of ``env.from_source`` gives each shard its watermark."""
        warn_without_effect("set_periodic_watermark_assigner", "use env.from_source(consumer, strategy, name)")
        return self

    def set_watermark_tracker(self, watermark_tracker: WatermarkTracker) -> FlinkKinesisConsumer:
        """Has no effect: ``WatermarkStrategy.with_watermark_alignment`` holds back shards that are ahead."""
        warn_without_effect("set_watermark_tracker", "use WatermarkStrategy.with_watermark_alignment")
        return self

    @property
    def bounded(self) -> bool:
        return False

    @property
    def produced_type(self) -> TypeInformation:
        return self._settings.deserializer.get_produced_type()

    @property
    def side_by_side(self) -> bool:
        return True

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Check that the streams can be read and are those of before; returns stream -> the time at which it was made.

        Raises:
            ConnectionFailedError: AWS does not answer.
            FinalOperationError: a stream does not exist, was made anew, or is not named any more.
            SavepointError: the position is none of this source.
        """
        splits = [] if position is None else SourcePosition.decode(position, self._settings.label).splits
        for name, at, end, info in splits:
            try:
                if at < 0 or "/" not in name or not all(map(str.isdigit, typed(_Info, info).hashes)):
                    raise ValueError("its name or its position is not that of a shard")
            except ValueError as error:
                raise SourcePosition.refusal([name, at, end, info], self._settings.label, error) from None
        left = sorted({stream_and_shard(name)[0] for name, *_ in splits} - set(self._settings.streams))
        if left:
            raise FinalOperationError(
                f"the job has read streams that its source does not name any more: {', '.join(left)}",
                where=self._settings.label,
                expected="the streams as before, or more of them",
                hint="name them again, or start the job in a new job directory",
            )
        client = self._settings.client()
        try:
            found = {stream: client.identity(stream) for stream in self._settings.streams}
            for name, at, *_ in splits:
                # AWS goes on at the oldest record without a word; where nothing came for so long, nothing is lost
                if at > 0 and found == dict(known) and not client.keeps(*stream_and_shard(name), at - 1):
                    _log.warning(
                        "%s: the last record that was read (%d) is not kept any more; records behind it may have been "
                        "deleted before they were read [%s]",
                        name,
                        at - 1,
                        self._settings.label,
                    )
        finally:
            client.close()
        for stream, made in found.items():
            if known.get(stream, made) != made:
                raise FinalOperationError(
                    f"the stream {stream!r} is not the one that the job has read: it was made at {made}, that one at "
                    f"{known[stream]}",
                    where=self._settings.label,
                    expected="the stream as the job has left it",
                    hint="start the job in a new job directory",
                )
        return found

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return KinesisSplitEnumerator(self._settings, restored)

    def create_reader(self) -> SplitReader:
        return KinesisSplitReader(self._settings)


@dataclass(frozen=True)
class _Info:
    """What the split of a shard knows besides its position: the time at which it begins, its hash keys, and the splits
    that are read before it."""

    at_ms: int | None
    hashes: list[str]
    parents: list[str]


class KinesisShardAssigner:
    """Says which subtask reads a shard. Has no effect here: see `FlinkKinesisConsumer.set_shard_assigner`."""

    @staticmethod
    def default_shard_assigner() -> KinesisShardAssigner:
        return KinesisShardAssigner()

    @staticmethod
    def uniform_shard_assigner() -> KinesisShardAssigner:
        return KinesisShardAssigner()


class WatermarkTracker:
    """Compares watermarks of subtasks. Has no effect here: see `FlinkKinesisConsumer.set_watermark_tracker`."""

    @staticmethod
    def job_manager_watermark_tracker(
        aggregate_name: str, log_accumulator_interval_millis: int = -1
    ) -> WatermarkTracker:
        return WatermarkTracker()
