"""Where a Kafka source stands, and whether it can go on there."""

from __future__ import annotations

import pytest

from flinkish.connectors.kafka.continuation import gone, renewed
from flinkish.connectors.kafka.offsets import parse_position, position_json
from flinkish.errors import SavepointError


def test_a_position_carries_the_ids_of_its_topics_where_they_are_known() -> None:
    spark = '{"clicks": {"0": 5, "1": 7}}'
    assert position_json(spark, {}) == spark
    offsets = {("clicks", 0): 5, ("clicks", 1): 7}
    assert parse_position(spark) == (offsets, {})
    assert parse_position(position_json(spark, {"clicks": "aa"})) == (offsets, {"clicks": "aa"})


def test_topics_may_have_any_names() -> None:
    spark = '{"offsets": {"0": 5}, "topic_ids": {"0": 6}}'
    assert parse_position(spark) == ({("offsets", 0): 5, ("topic_ids", 0): 6}, {})


@pytest.mark.parametrize("text", ["", "5", "[]", '{"a": 5}', '{"offsets": 5, "topic_ids": {}}', '{"topic_ids": 5}'])
def test_what_is_no_position_is_quoted(text: str) -> None:
    with pytest.raises(SavepointError, match="of a Kafka source cannot be read"):
        parse_position(text)


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
