"""Messages of Kafka become records, with Kafka's timestamps where something reads them. No broker is needed."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.settings import decoded
from flinkish.core.source import SplitRecords

MESSAGES = [
    Message(topic="clicks", partition=0, offset=offset, value=value, timestamp=(1, time_ms))
    for offset, (value, time_ms) in enumerate([(b"a", 1_000), (None, 5_000), (b"b", 3_000)])
]


@pytest.mark.parametrize(("with_timestamps", "timestamps"), [(True, [1_000, 3_000]), (False, None)])
def test_timestamps_are_made_where_they_are_read(with_timestamps: bool, timestamps: list[int] | None) -> None:
    records = decoded(SimpleStringSchema(), MESSAGES, "clicks-0", with_timestamps)
    assert records == SplitRecords(["a", "b"], timestamps, newest_ms=3_000)
