"""Reminders for customers who filled a cart and left: a process function with state and timers.

    ./spark-submit.sh jobs/abandoned_carts.py            # options: see --help

Each item that goes into the cart moves the timer to half an hour later; a payment deletes it. When the timer fires, the
job emits a reminder.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from flinkish.common import Row, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.state import ListStateDescriptor, ValueStateDescriptor
from flinkish.examples.options import JobOptions, run, run_sql, text_table

CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS reminders (customer TEXT NOT NULL, left_ts BIGINT NOT NULL, things BIGINT NOT NULL, "
    "cents BIGINT NOT NULL, PRIMARY KEY (customer, left_ts))"
)
#: customer, price in cents of the item that went into the cart (PAID: the cart was paid), event time in ms since 1970
EVENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
CUSTOMER, CENTS, TS = range(3)
PAID = -1
#: customer, time of the last item that went into the cart, number of items, their total price
REMINDER = Types.ROW_NAMED(
    ["customer", "left_ts", "things", "cents"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]
)
PATIENCE = Time.minutes(30)
FIRST_TS_MS, STEP_MS = 1_700_006_400_000, 2_000
EVENTS_PER_EPOCH = 50_000


def event(customers: int, index: int) -> tuple[str, int, int]:
    """The event with this index. Every third visit of a customer ends with a payment."""
    chance = index * 2_654_435_769 % 2**32
    paid = chance // 17 % 3 == 0
    return f"c{chance % customers}", PAID if paid else 100 + chance // 19 % 9_900, FIRST_TS_MS + index * STEP_MS


def events(number: int, customers: int) -> DataGeneratorSource:
    """The first ``number`` events of that many customers, in event-time order."""
    return DataGeneratorSource(partial(event, customers), number, EVENT, records_per_epoch=EVENTS_PER_EPOCH)


class EventTime(TimestampAssigner):
    """Assigns the event time."""

    def extract_timestamp(self, value: tuple[str, int, int], record_timestamp: int) -> int:
        """The last field of the event."""
        return value[TS]


def watermarks() -> WatermarkStrategy:
    """Watermarks for events in event-time order."""
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())


class Reminders(KeyedProcessFunction):
    """Keeps the content of each customer's cart, and the time of its timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._cart = runtime_context.get_list_state(ListStateDescriptor("cart", Types.LONG()))
        self._timer = runtime_context.get_state(ValueStateDescriptor("timer", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timer = self._timer.value()
        if timer is not None:
            ctx.timer_service().delete_event_time_timer(timer)
        if value[CENTS] == PAID:
            self._forget()
            return
        self._cart.add(value[CENTS])
        timer = value[TS] + PATIENCE.to_milliseconds()
        self._timer.update(timer)
        ctx.timer_service().register_event_time_timer(timer)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        cart = list(self._cart.get())
        self._forget()
        yield Row(ctx.get_current_key(), timestamp - PATIENCE.to_milliseconds(), len(cart), sum(cart))

    def _forget(self) -> None:
        self._cart.clear()
        self._timer.clear()


def build(events: DataStream, reminders: Sink) -> None:
    """The pipeline: events with their times -> REMINDER -> ``reminders``."""
    (
        events.key_by(lambda event: event[CUSTOMER], Types.STRING())
        .process(Reminders(), REMINDER)
        .uid("reminders")
        .sink_to(reminders)
        .uid("table")
    )


def reminders_sink(database: JdbcConnectionOptions) -> JdbcSink:
    """Writes one row per abandoned cart."""
    return JdbcSink.upsert("reminders", ["customer", "left_ts"], REMINDER, database)


def show(database: JdbcConnectionOptions) -> None:
    """Print the most expensive carts, and totals."""
    top = run_sql(
        database, "SELECT customer, things, cents FROM reminders ORDER BY cents DESC, customer, left_ts LIMIT 10"
    )
    ((carts, cents),) = run_sql(database, "SELECT COUNT(*), COALESCE(SUM(cents), 0) FROM reminders")
    print(text_table(["customer", "things", "cents"], top))
    print(f"{carts:,} reminders for {int(cents):,} cents, in the table reminders of {database.url}")


def main() -> None:
    """Run the job and show its results."""

    def add_pipeline(env: StreamExecutionEnvironment, options: JobOptions) -> None:
        stream = env.from_source(options.source, watermarks(), "events").uid("events")
        build(stream, reminders_sink(options.database))

    run("abandoned-carts", "Reminds customers of their carts.", [CREATE_TABLE], add_pipeline, show, events)


if __name__ == "__main__":
    main()
