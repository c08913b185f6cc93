"""Click events, from a generator that needs no server or from a Kafka topic of JSON objects.

Rule: the n-th generated click depends on n alone, so that a test can compute the results that a job must give, and an
epoch that runs again reads the same clicks. (The multiples of an irrational number modulo 1 are spread evenly, and
those of different irrational numbers look independent.)
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

#: The type of a click. ``ts`` is its event time in ms since 1970-01-01T00:00:00Z.
CLICK = Types.ROW_NAMED(
    ["user_id", "logged_in", "amount", "ts", "page"],
    [Types.STRING(), Types.BOOLEAN(), Types.DOUBLE(), Types.LONG(), Types.STRING()],
)
#: The positions of the fields. Reading a field by position is a few times faster than by name.
USER_ID, LOGGED_IN, AMOUNT, TS, PAGE = range(5)

FIRST_TS_MS = 1_700_000_040_000  # a full minute
STEP_MS = 10
#: A click comes at most this much later than a click with a higher timestamp, ...
OUT_OF_ORDER_MS = 1_000
#: ... but every 997th click from the 100,000th on (when no watermark can be that low any more) is an hour late.
LATE_EVERY, LATE_FROM, LATE_BY_MS = 997, 100_000, 3_600_000
PAGES = 20

#: Records per epoch of the generator: few enough to see the job at work. The number is fixed, because a job that is
#: started again counts in epochs.
RECORDS_PER_EPOCH = 50_000

_GOLDEN, _PLASTIC, _SILVER = 2_654_435_769, 3_242_174_889, 1_779_033_703
_32_BITS = 2**32


def clicks_of(indices: Iterable[int], users: int) -> list[Row]:
    """The clicks with these numbers, which count from 0. Users are drawn by Zipf's law: a few click often, most of the
    ``users`` click rarely.

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
    """A bounded source of the clicks with the numbers below ``events``."""
    return DataGeneratorSource(
        partial(clicks_of, users=users),
        events,
        CLICK,
        records_per_epoch=RECORDS_PER_EPOCH,
        splits=splits,
        of_list=True,
    )


def kafka_clicks(bootstrap_servers: str, topic: str, bounded: bool) -> KafkaSource:
    """A source of all clicks in a topic of JSON objects; with ``bounded`` it ends with the clicks that the topic holds
    when the job starts."""
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
    """Assigns each click its event time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The field ``ts`` of the click, in ms."""
        return int(value[TS])


def click_watermarks() -> WatermarkStrategy:
    """A strategy whose watermarks allow for the disorder of the generated clicks (`OUT_OF_ORDER_MS`)."""
    bound = Duration.of_millis(OUT_OF_ORDER_MS)
    return WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(ClickTime())
