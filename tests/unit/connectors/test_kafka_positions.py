"""Where a Kafka source stands, and whether it can go on there."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Message

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.enumerator import gone, next_offsets, renewed
from flinkish.connectors.kafka.settings import decoded
from flinkish.core.source import SplitRecords
from flinkish.errors import SavepointError


def test_the_next_offsets_of_a_position_are_those_of_partitions_that_are_not_read_to_their_end() -> None:
    info = {"topic": "a-b", "partition": 3}
    splits = [["a-b-3", 5, None, info], ["a-b-4", 7, 9, {**info, "partition": 4}]]
    splits.append(["a-b-5", 9, 9, {**info, "partition": 5}])
    assert next_offsets(json.dumps({"complete": False, "ended": [], "splits": splits, "epoch": 4})) == {
        ("a-b", 3): 5,
        ("a-b", 4): 7,
    }


def of_splits(splits: str) -> str:
    return '{"complete": false, "ended": [], "splits": ' + splits + "}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[]",
        "{}",
        of_splits("5"),
        of_splits("[5]"),
        of_splits('[["a-0", 5, null, null]]'),
        of_splits('[["b-0", 5, null, {"topic": "a", "partition": 0}]]'),
        of_splits('[["a-0", -1, null, {"topic": "a", "partition": 0}]]'),
        of_splits("[" * 200_000 + "]" * 200_000),
    ],
    ids=lambda text: text[:70] or "empty",
)
def test_what_is_no_position_is_quoted(text: str) -> None:
    with pytest.raises(SavepointError, match="the position .* of a source cannot be read.*KafkaSource"):
        next_offsets(text)


def test_a_topic_with_another_id_was_made_anew() -> None:
    assert renewed({"a": "x", "b": "y"}, {"a": "x", "b": "z", "c": "w"}) == [
        "the topic 'b' is not the one that the job has read: it was deleted and made anew (id y, now z)"
    ]
    assert renewed({"a": "x"}, {}) == [], "a broker that tells no ids"


def test_records_before_behind_and_without_their_partition_are_gone() -> None:
    offsets = {("a", 0): 5, ("a", 1): 5, ("a", 2): 5, ("b", 0): 5}
    assert gone(offsets, {("a", 0): (5, 5), ("a", 1): (8, 9), ("a", 2): (0, 3)}) == [
        "records of topic 'a', partition 1 were deleted before they were read: offsets 5 to 7 "
        "(the first one there is 8)",
        "topic 'a', partition 2 ends before offset 3, but the job has read up to offset 5: records were taken away",
        "topic 'b', partition 0 is not there any more; the job has read it up to offset 5",
    ]
    assert gone({("a", 0): 5}, {("a", 0): (0, 9)}) == []


# --- Messages of Kafka become records, with Kafka's timestamps where something reads them. No broker is needed ------


MESSAGES = [
    Message(topic="clicks", partition=0, offset=offset, value=value, timestamp=(1, time_ms))
    for offset, (value, time_ms) in enumerate([(b"a", 1_000), (None, 5_000), (b"b", 3_000)])
]


@pytest.mark.parametrize(("with_timestamps", "timestamps"), [(True, [1_000, 3_000]), (False, None)])
def test_timestamps_are_made_where_they_are_read(with_timestamps: bool, timestamps: list[int] | None) -> None:
    records = decoded(SimpleStringSchema(), MESSAGES, "clicks-0", with_timestamps)
    assert records == SplitRecords(["a", "b"], timestamps, newest_ms=3_000)
