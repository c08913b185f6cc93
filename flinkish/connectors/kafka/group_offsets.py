"""Commits the offsets of finished epochs to the source's consumer group, as Flink does when a checkpoint is complete.

The job itself never reads these offsets: they serve monitoring, and jobs that start from ``committed_offsets()``. So a
failure is only logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from flinkish.connectors.kafka.client import client_settings, driver
from flinkish.connectors.kafka.settings import KafkaSourceSettings

_log = logging.getLogger("flinkish.KafkaSourceReader")

TIMEOUT_S = 10.0

_lock = threading.Lock()
# Admin clients are kept for the next epoch, one per cluster and credentials: its settings as text -> client.
# (settings as text, group id) -> the offset of each split that was committed last.
_clients: dict[str, Any] = {}
_committed: dict[tuple[str, str], dict[str, int]] = {}


def commit(settings: KafkaSourceSettings, positions: Mapping[str, int]) -> None:
    """Commit the next offset of each split to the group of the source. Splits whose offset was committed already are
    left out. A failure is logged as a warning."""
    kafka = driver("KafkaSource")
    access = client_settings(settings.bootstrap_servers, settings.properties)
    key = str(sorted(access.items()))
    with _lock:
        last = _committed.setdefault((key, settings.group_id), {})
        moved = {split: offset for split, offset in positions.items() if last.get(split) != offset}
        if not moved:
            return
        try:
            if key not in _clients:
                _clients[key] = kafka.admin.AdminClient({"log_level": 0, **access})
            offsets = [_next_offset(kafka, split, offset) for split, offset in moved.items()]
            wanted = kafka.ConsumerGroupTopicPartitions(settings.group_id, offsets)
            futures = _clients[key].alter_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)
            answer = futures[settings.group_id].result(TIMEOUT_S)
            refused = [entry for entry in answer.topic_partitions if entry.error is not None]
            if refused:
                raise kafka.KafkaException(refused[0].error)
            last.update(moved)
        except (kafka.KafkaException, TimeoutError) as error:
            _log.warning(
                "the offsets of an epoch could not be committed to the group '%s': %s; the job does not need them [%s]",
                settings.group_id,
                error,
                settings.label,
            )


def _next_offset(kafka: Any, split: str, offset: int) -> Any:
    topic, _, partition = split.rpartition("-")
    return kafka.TopicPartition(topic, int(partition), offset)
