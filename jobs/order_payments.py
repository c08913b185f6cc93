"""Orders and their payments: orders paid in time, orders not paid, and payments without an order.

    ./spark-submit.sh jobs/order_payments.py            # generated orders and payments; no server needed

Two connected streams, keyed by the order's id, share state and timers: the record that arrives first waits for the
other one, for at most ten minutes of event time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flinkish.common import Row, Types
from flinkish.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.examples.options import parse, run_sql, text_table
from flinkish.examples.orders import (
    AMOUNT,
    ORDER,
    ORDER_ID,
    PAYMENT,
    TS,
    generated_orders,
    generated_payments,
    order_watermarks,
    payment_watermarks,
)

CREATE_ORDERS = "CREATE TABLE IF NOT EXISTS orders (order_id TEXT PRIMARY KEY, status TEXT NOT NULL, waited_ms BIGINT)"
CREATE_PAYMENTS = "CREATE TABLE IF NOT EXISTS stray_payments (order_id TEXT PRIMARY KEY, amount DOUBLE PRECISION)"

TIMEOUT_MS = 600_000
#: order, ``paid``, ``underpaid`` or ``unpaid``, time until the payment
STATUS = Types.ROW_NAMED(["order_id", "status", "waited_ms"], [Types.STRING(), Types.STRING(), Types.LONG()])
STRAY = Types.ROW_NAMED(["order_id", "amount"], [Types.STRING(), Types.DOUBLE()])
STRAY_PAYMENTS = OutputTag("stray payments", STRAY)


class Match(KeyedCoProcessFunction):
    """Matches an order with its payment if they are at most TIMEOUT_MS apart. Only the records' times count, not
    their order of arrival, so the result is the same however far the streams drift apart."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._order = runtime_context.get_state(ValueStateDescriptor("order", ORDER))
        self._payment = runtime_context.get_state(ValueStateDescriptor("payment", PAYMENT))

    def process_element1(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterator[Row]:
        self._order.update(value)
        yield from self._matched(ctx, value[TS])

    def process_element2(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterator[Row]:
        self._payment.update(value)
        yield from self._matched(ctx, value[TS])

    def _matched(self, ctx: KeyedCoProcessFunction.Context, ts: int) -> Iterator[Row]:
        order, payment = self._order.value(), self._payment.value()
        if order is None or payment is None or abs(payment[TS] - order[TS]) > TIMEOUT_MS:
            ctx.timer_service().register_event_time_timer(ts + TIMEOUT_MS)
            return
        for other in (order, payment):
            ctx.timer_service().delete_event_time_timer(other[TS] + TIMEOUT_MS)
        yield Row(order[ORDER_ID], "paid" if payment[AMOUNT] >= order[AMOUNT] else "underpaid", payment[TS] - order[TS])
        self._order.clear()
        self._payment.clear()

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        order, payment = self._order.value(), self._payment.value()
        if order is not None and order[TS] + TIMEOUT_MS == timestamp:
            yield Row(order[ORDER_ID], "unpaid", TIMEOUT_MS)
            self._order.clear()
        if payment is not None and payment[TS] + TIMEOUT_MS == timestamp:
            yield STRAY_PAYMENTS, Row(payment[ORDER_ID], payment[AMOUNT])
            self._payment.clear()


def build(orders: DataStream, payments: DataStream, statuses: Sink, strays: Sink) -> None:
    """The pipeline: orders and payments (`flinkish.examples.orders`) -> STATUS -> ``statuses``, STRAY -> ``strays``."""
    matched = (
        orders.connect(payments)
        .key_by(lambda order: order[ORDER_ID], lambda payment: payment[ORDER_ID], Types.STRING())
        .process(Match(), output_type=STATUS)
        .uid("match")
    )
    matched.sink_to(statuses).uid("statuses")
    matched.get_side_output(STRAY_PAYMENTS).uid("stray-payments").sink_to(strays).uid("strays")


def sinks(database: JdbcConnectionOptions) -> tuple[JdbcSink, JdbcSink]:
    """The sinks with one row per order and with one row per stray payment."""
    return (
        JdbcSink.upsert("orders", ["order_id"], STATUS, database),
        JdbcSink.upsert("stray_payments", ["order_id"], STRAY, database),
    )


def show(database: JdbcConnectionOptions) -> None:
    """Print the status of the orders."""
    statuses = run_sql(
        database,
        "SELECT status, COUNT(*), CAST(AVG(waited_ms) / 1000 AS INTEGER) FROM orders GROUP BY status ORDER BY status",
    )
    ((strays,),) = run_sql(database, "SELECT COUNT(*) FROM stray_payments")
    print(text_table(["status", "orders", "seconds waited"], statuses))
    print(f"{strays:,} payments had no order in time, in the table stray_payments beside orders of {database.url}")


def main() -> None:
    """Run the job and show its results."""
    options = parse(
        "order-payments",
        "Matches orders with their payments.",
        generator=lambda events, users: generated_orders(events),
    )
    run_sql(options.database, CREATE_ORDERS, CREATE_PAYMENTS)
    env = StreamExecutionEnvironment.get_execution_environment(options.configuration)
    orders = env.from_source(options.source, order_watermarks(), "orders").uid("orders")
    payments = env.from_source(generated_payments(options.events), payment_watermarks(), "payments").uid("payments")
    build(orders, payments, *sinks(options.database))
    env.execute("order-payments")
    show(options.database)


if __name__ == "__main__":
    main()
