"""Click events: from a generator that needs no server, and from a Kafka topic of JSON objects.

Rule: the n-th generated click depends on n alone, so that a test can compute what a job must give, and an epoch that
runs again reads the same clicks. (Multiples of irrational numbers modulo 1 spread evenly, and those of different ones
look independent.)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from flinkish.common import Duration, Row, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from flinkish.formats.json import JsonRowDeserializationSchema

#: ``ts``: event time in ms since 1970-01-01T00:00:00Z.
CLICK = Types.ROW_NAMED(
    ["user_id", "logged_in", "amount", "ts", "page"],
    [Types.STRING(), Types.BOOLEAN(), Types.DOUBLE(), Types.LONG(), Types.STRING()],
)
#: Positions of the fields: reading by position is a few times faster than by name.
USER_ID, LOGGED_IN, AMOUNT, TS, PAGE = range(5)

FIRST_TS_MS = 1_700_000_040_000  # a full minute
STEP_MS = 10
#: A click comes at most this much later than one with a higher timestamp ...
OUT_OF_ORDER_MS = 1_000
#: ... but every 997th, from the 100,000th on (when no watermark can be that low any more), comes an hour late.
LATE_EVERY, LATE_FROM, LATE_BY_MS = 997, 100_000, 3_600_000
PAGES = 20

#: Of the generator: few enough to see the job at work. Fixed, because a job that goes on counts in epochs.
RECORDS_PER_EPOCH = 50_000

_GOLDEN, _PLASTIC, _SILVER = 2_654_435_769, 3_242_174_889, 1_779_033_703
_32_BITS = 2**32


def clicks_of(indices: Iterable[int], users: int) -> list[Row]:
    """The clicks of these numbers (from 0). Users are drawn by Zipf's law: few click often, most rarely.

    >>> clicks_of([7], users=1000)
    [Row(user_id='u9', logged_in=True, amount=89.92, ts=1700000039210, page='/page/19')]
    """
    click = Row(*CLICK.get_field_names())
    return [click(*_click(index, users)) for index in indices]


def _click(index: int, users: int) -> tuple[Any, ...]:
    first = index * _GOLDEN % _32_BITS / _32_BITS
    second = index * _PLASTIC % _32_BITS / _32_BITS
    third = index * _SILVER % _32_BITS / _32_BITS
    user = int((users + 1) ** first) - 1
    ts = FIRST_TS_MS + index * STEP_MS - int(third * OUT_OF_ORDER_MS)
    if index >= LATE_FROM and index % LATE_EVERY == 0:
        ts -= LATE_BY_MS
    return f"u{user}", second < 0.7, round(third * 100, 2), ts, f"/page/{int(third * 1000) % PAGES}"


def generated_clicks(events: int, users: int, splits: int = 1) -> DataGeneratorSource:
    """The clicks of the numbers below ``events``."""
    return DataGeneratorSource(
        partial(clicks_of, users=users),
        events,
        CLICK,
        records_per_epoch=RECORDS_PER_EPOCH,
        splits=splits,
        of_list=True,
    )


def kafka_clicks(bootstrap_servers: str, topic: str, bounded: bool) -> KafkaSource:
    """All clicks of a topic of JSON objects; ``bounded``: those that are there when the job starts."""
    schema = JsonRowDeserializationSchema.builder().type_info(CLICK).build()
    builder = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap_servers)
        .set_topics(topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(schema)
    )
    if bounded:
        builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
    return builder.build()


class ClickTime(TimestampAssigner):
    """The event time of a click."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Its ``ts``."""
        return int(value[TS])


def click_watermarks() -> WatermarkStrategy:
    """Watermarks that follow the generated clicks' disorder."""
    bound = Duration.of_millis(OUT_OF_ORDER_MS)
    return WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(ClickTime())
