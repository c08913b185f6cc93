"""Commits the offsets of finished epochs to the source's consumer group, as Flink does when a checkpoint is complete.

The job itself never reads these offsets: they serve monitoring, and jobs that start from ``committed_offsets()``. So
whoever calls this only logs a failure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from flinkish.connectors.kafka.client import MOMENTARY, client_settings, driver
from flinkish.connectors.kafka.settings import KafkaSourceSettings
from flinkish.errors import ConnectionFailedError

TIMEOUT_S = 10.0

_lock = threading.Lock()
# Admin clients are kept for the next epoch, one per cluster and credentials: its settings as text -> client.
_clients: dict[str, Any] = {}


def commit_offsets(settings: KafkaSourceSettings, positions: Mapping[str, int]) -> None:
    """Commit the next offset of each split to the group of the source.

    Raises:
        ConnectionFailedError: Kafka does not answer, or refuses.
    """
    kafka = driver("KafkaSource")
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return _commit(kafka, settings, positions)
        except (kafka.KafkaException, FutureTimeout) as error:
            # as of a group that nobody has committed anything to before
            momentary = isinstance(error, kafka.KafkaException) and error.args[0].name() in MOMENTARY
            if not momentary or time.monotonic() > deadline:
                raise ConnectionFailedError(
                    f"offsets could not be committed to the group '{settings.group_id}': {error}",
                    where=settings.label,
                    expected="a group without members, to which the credentials may commit",
                    hint="the job does not need these offsets; commit.offsets.on.checkpoint=false switches this off",
                ) from error
            time.sleep(0.1)


def _commit(kafka: Any, settings: KafkaSourceSettings, positions: Mapping[str, int]) -> None:
    access = client_settings(settings.bootstrap_servers, settings.properties)
    key = str(sorted(access.items()))
    with _lock:
        if key not in _clients:
            _clients[key] = kafka.admin.AdminClient({"log_level": 0, **access})
        client = _clients[key]
    offsets = [_next_offset(kafka, split, offset) for split, offset in positions.items()]
    wanted = kafka.ConsumerGroupTopicPartitions(settings.group_id, offsets)
    futures = client.alter_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)
    answer = futures[settings.group_id].result(TIMEOUT_S)
    refused = [entry for entry in answer.topic_partitions if entry.error is not None]
    if refused:
        raise kafka.KafkaException(refused[0].error)


def _next_offset(kafka: Any, split: str, offset: int) -> Any:
    topic, _, partition = split.rpartition("-")
    return kafka.TopicPartition(topic, int(partition), offset)
