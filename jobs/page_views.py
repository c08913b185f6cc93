"""Views and amounts per page and minute of event time; late clicks are counted separately.

./spark-submit.sh jobs/page_views.py            # options: as for jobs/click_count.py, see --help
"""

from __future__ import annotations

from collections.abc import Iterable

from flinkish.common import Row, Time, Types
from flinkish.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
)
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.examples.clicks import AMOUNT, CLICK, PAGE, click_watermarks
from flinkish.examples.options import EXAMPLE_SERVERS, parse, run_sql, text_table

CREATE_VIEWS = (
    "CREATE TABLE IF NOT EXISTS page_views (page TEXT NOT NULL, window_start BIGINT NOT NULL, views BIGINT NOT NULL, "
    "amount DOUBLE PRECISION NOT NULL, PRIMARY KEY (page, window_start))"
)
CREATE_LATE = "CREATE TABLE IF NOT EXISTS late_clicks (page TEXT PRIMARY KEY, clicks BIGINT NOT NULL)"

LATE = OutputTag("late", CLICK)
#: page, start of the minute (ms since 1970), views, sum of amounts
VIEWS = Types.ROW_NAMED(
    ["page", "window_start", "views", "amount"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]
)
LATE_COUNTS = Types.ROW_NAMED(["page", "clicks"], [Types.STRING(), Types.LONG()])


class CountAndSum(AggregateFunction):
    """Counts clicks and sums their amounts; the accumulator is (number of clicks, sum of their amounts)."""

    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add(self, value: Row, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator[0] + 1, accumulator[1] + value[AMOUNT]

    def get_result(self, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class PageMinute(ProcessWindowFunction[tuple[int, float], Row, str, TimeWindow]):
    """Adds page and minute to the sums."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple[int, float]]
    ) -> Iterable[Row]:
        for views, amount in elements:
            yield Row(key, context.window().start, views, round(amount, 2))


def build(env: StreamExecutionEnvironment, clicks: DataStream, views: Sink, late: Sink) -> None:
    """The pipeline: ``clicks`` with event times -> VIEWS per page and minute -> ``views``; LATE_COUNTS -> ``late``."""
    windows = (
        clicks.key_by(lambda click: click[PAGE])
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .side_output_late_data(LATE)
        .aggregate(CountAndSum(), PageMinute(), output_type=VIEWS)
        .uid("page-minutes")
    )
    windows.sink_to(views).uid("page-views")
    (
        windows.get_side_output(LATE)
        .map(lambda click: (click[PAGE], 1), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .uid("late-pages")
        .key_by(lambda pair: pair[0])
        .sum(1)
        .uid("late-count")
        .sink_to(late)
        .uid("late-clicks")
    )


def show(database: JdbcConnectionOptions) -> None:
    """Print the busiest pages."""
    top = run_sql(
        database,
        "SELECT page, COUNT(*), CAST(SUM(views) AS BIGINT), SUM(amount) FROM page_views "
        "GROUP BY page ORDER BY SUM(views) DESC, page LIMIT 10",
    )
    ((late,),) = run_sql(database, "SELECT COALESCE(SUM(clicks), 0) FROM late_clicks")
    print(text_table(["page", "minutes", "views", "amount"], top))
    print(f"{int(late):,} clicks were late, in the table late_clicks beside page_views of {database.url}")


def main() -> None:
    """Run the job and show its results."""
    options = parse("page-views", "Counts views per page and minute.")
    run_sql(options.database, CREATE_VIEWS, CREATE_LATE)
    env = StreamExecutionEnvironment.get_execution_environment(options.configuration)
    clicks = env.from_source(options.source, click_watermarks(), "clicks").uid("clicks")
    views = JdbcSink.upsert("page_views", ["page", "window_start"], VIEWS, options.database)
    build(env, clicks, views, JdbcSink.upsert("late_clicks", ["page"], LATE_COUNTS, options.database))
    env.execute("page-views")
    show(options.database)
    if options.embedded:
        print(f"With Kafka and PostgreSQL, add: {EXAMPLE_SERVERS}")


if __name__ == "__main__":
    main()
