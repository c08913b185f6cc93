"""The three best-selling products of the last hour, every ten minutes.

./spark-submit.sh jobs/top_products.py          # options: see --help
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from flinkish.common import Duration, Row, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import DataStream, ProcessWindowFunction, StreamExecutionEnvironment, TimeWindow
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.functions import ProcessAllWindowFunction
from flinkish.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from flinkish.examples.options import JobOptions, run, run_sql, text_table

CREATE_TOP = (
    "CREATE TABLE IF NOT EXISTS top_products (window_end BIGINT NOT NULL, place BIGINT NOT NULL, "
    "product TEXT NOT NULL, cents BIGINT NOT NULL, PRIMARY KEY (window_end, place))"
)
#: product, customer, cents, event time in ms since 1970-01-01T00:00:00Z
SALE = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
PRODUCT, CUSTOMER, CENTS, TS = range(4)
PLACE = Types.ROW_NAMED(
    ["window_end", "place", "product", "cents"], [Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG()]
)
SIZE, SLIDE, PLACES = Time.hours(1), Time.minutes(10), 3
FIRST_TS_MS, STEP_MS, OUT_OF_ORDER_MS, PRODUCTS = 1_700_006_400_000, 500, 5_000, 40
RECORDS_PER_EPOCH = 50_000


def sale(users: int, index: int) -> tuple[str, str, int, int]:
    """The sale with this index. The best-selling product changes with the hour; sales are up to 5 s late."""
    chance, other = index * 2_654_435_769 % 2**32, index * 3_242_174_889 % 2**32
    product = (min(chance % PRODUCTS, chance // 41 % PRODUCTS) + index * STEP_MS // 3_600_000 * 7) % PRODUCTS
    cents = 100 + other % 5_000
    return (
        f"p{product}",
        f"c{other // 7 % users}",
        cents,
        FIRST_TS_MS + index * STEP_MS - chance // 13 % OUT_OF_ORDER_MS,
    )


def sales(events: int, users: int) -> DataGeneratorSource:
    """The first ``events`` sales to that many customers."""
    return DataGeneratorSource(partial(sale, users), events, SALE, records_per_epoch=RECORDS_PER_EPOCH, splits=2)


class SaleTime(TimestampAssigner):
    """Assigns the event time of a sale."""

    def extract_timestamp(self, value: tuple[str, str, int, int], record_timestamp: int) -> int:
        """The last field of the sale."""
        return value[TS]


def watermarks() -> WatermarkStrategy:
    """Watermarks that allow for out-of-order sales."""
    bound = Duration.of_millis(OUT_OF_ORDER_MS)
    return WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(SaleTime())


class WithWindow(ProcessWindowFunction[tuple[str, int], tuple[str, int, int], str, TimeWindow]):
    """Emits (product, cents, end of the window)."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple[str, int]]
    ) -> Iterable[tuple[str, int, int]]:
        for product, cents in elements:
            yield product, cents, context.window().end


class Top(ProcessAllWindowFunction[tuple[str, int, int], Row, TimeWindow]):
    """Emits the first places of a window, by sum."""

    def process(
        self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[tuple[str, int, int]]
    ) -> Iterable[Row]:
        best = sorted(elements, key=lambda sums: (-sums[1], sums[0]))[:PLACES]
        for place, (product, cents, window_end) in enumerate(best, 1):
            yield Row(window_end, place, product, cents)


def build(env: StreamExecutionEnvironment, sales: DataStream, top: Sink) -> None:
    """The pipeline: ``sales`` with event times -> PLACE -> ``top``."""
    sums = (
        sales.map(lambda sale: (sale[PRODUCT], sale[CENTS]), Types.TUPLE([Types.STRING(), Types.LONG()]))
        .uid("cents")
        .key_by(lambda sale: sale[0])
        .window(SlidingEventTimeWindows.of(SIZE, SLIDE))
        .reduce(lambda one, other: (one[0], one[1] + other[1]), WithWindow())
        .uid("sums")
    )
    # results have the last timestamp of their window, so those of one window fall into the same window of the slide
    sums.window_all(TumblingEventTimeWindows.of(SLIDE)).process(Top(), PLACE).uid("top").sink_to(top).uid("table")


def top_sink(database: JdbcConnectionOptions) -> JdbcSink:
    """Writes one row per window and place."""
    return JdbcSink.upsert("top_products", ["window_end", "place"], PLACE, database)


def show(database: JdbcConnectionOptions) -> None:
    """Print how often each product was in first place."""
    top = run_sql(
        database,
        "SELECT product, COUNT(*), CAST(MAX(cents) AS BIGINT) FROM top_products WHERE place = 1 "
        "GROUP BY product ORDER BY COUNT(*) DESC, product LIMIT 10",
    )
    ((windows,),) = run_sql(database, "SELECT COUNT(DISTINCT window_end) FROM top_products")
    print(text_table(["product", "times first", "most cents"], top))
    print(f"{windows:,} windows, in the table top_products of {database.url}")


def main() -> None:
    """Run the job and show its results."""

    def add_pipeline(env: StreamExecutionEnvironment, options: JobOptions) -> None:
        stream = env.from_source(options.source, watermarks(), "sales").uid("sales")
        build(env, stream, top_sink(options.database))

    run("top-products", "Finds the products that sell best.", [CREATE_TOP], add_pipeline, show, sales)


if __name__ == "__main__":
    main()
