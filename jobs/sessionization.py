"""Visits of a web site: clicks of a visitor belong to one visit until half an hour passes without one.

./spark-submit.sh jobs/sessionization.py        # options: see --help
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from flinkish.common import Duration, Row, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import (
    AggregateFunction,
    DataStream,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
)
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.window import EventTimeSessionWindows
from flinkish.examples.options import JobOptions, run, run_sql, text_table

CREATE_VISITS = (
    "CREATE TABLE IF NOT EXISTS visits (visitor TEXT NOT NULL, begin_ts BIGINT NOT NULL, end_ts BIGINT NOT NULL, "
    "clicks BIGINT NOT NULL, entry_page TEXT NOT NULL, exit_page TEXT NOT NULL, PRIMARY KEY (visitor, begin_ts))"
)
#: ``ts``: event time in ms since 1970-01-01T00:00:00Z.
CLICK = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
VISITOR, PAGE, TS = range(3)
VISIT = Types.ROW_NAMED(
    ["visitor", "begin_ts", "end_ts", "clicks", "entry_page", "exit_page"],
    [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING(), Types.STRING()],
)

GAP = Time.minutes(30)
FIRST_TS_MS, STEP_MS, OUT_OF_ORDER_MS = 1_700_006_400_000, 1_000, 20_000
HOUR_CLICKS, SHIFTS, PAGES = 3_600_000 // STEP_MS, 6, 12
RECORDS_PER_EPOCH = 50_000


def click(users: int, index: int) -> tuple[str, str, int]:
    """The click with this index. A visitor comes in every sixth hour; clicks are up to 20 s late."""
    hour, chance = index // HOUR_CLICKS, index * 2_654_435_769 % 2**32
    visitor = chance % (users // SHIFTS + 1) * SHIFTS + hour % SHIFTS
    late_ms = chance // 7 % OUT_OF_ORDER_MS
    return f"v{visitor}", f"/page/{chance // 11 % PAGES}", FIRST_TS_MS + index * STEP_MS - late_ms


def clicks(events: int, users: int) -> DataGeneratorSource:
    """The first ``events`` clicks of that many visitors."""
    return DataGeneratorSource(partial(click, users), events, CLICK, records_per_epoch=RECORDS_PER_EPOCH, splits=2)


class ClickTime(TimestampAssigner):
    """Assigns the event time of a click."""

    def extract_timestamp(self, value: tuple[str, str, int], record_timestamp: int) -> int:
        """The field ``ts``."""
        return value[TS]


def watermarks() -> WatermarkStrategy:
    """Watermarks that allow for out-of-order clicks."""
    bound = Duration.of_millis(OUT_OF_ORDER_MS)
    return WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(ClickTime())


#: Number of clicks; time and page of the first and of the last one.
_Visit = tuple[int, tuple[int, str], tuple[int, str]]


class FirstAndLast(AggregateFunction):
    """Folds clicks into a `_Visit`, and merges two visits that become one."""

    def create_accumulator(self) -> _Visit | None:
        return None

    def add(self, value: tuple[str, str, int], accumulator: _Visit | None) -> _Visit:
        here = (value[TS], value[PAGE])
        return (1, here, here) if accumulator is None else self.merge(accumulator, (1, here, here))

    def get_result(self, accumulator: _Visit) -> _Visit:
        return accumulator

    def merge(self, acc_a: _Visit, acc_b: _Visit) -> _Visit:
        return acc_a[0] + acc_b[0], min(acc_a[1], acc_b[1]), max(acc_a[2], acc_b[2])


class ToRow(ProcessWindowFunction[_Visit, Row, str, TimeWindow]):
    """Adds the visitor to the visit."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[_Visit]
    ) -> Iterable[Row]:
        for number, (begin_ts, entry_page), (end_ts, exit_page) in elements:
            yield Row(key, begin_ts, end_ts, number, entry_page, exit_page)


def build(env: StreamExecutionEnvironment, clicks: DataStream, visits: Sink) -> None:
    """The pipeline: ``clicks`` with event times -> VISIT -> ``visits``."""
    (
        clicks.key_by(lambda click: click[VISITOR])
        .window(EventTimeSessionWindows.with_gap(GAP))
        .aggregate(FirstAndLast(), ToRow(), output_type=VISIT)
        .uid("visits")
        .sink_to(visits)
        .uid("table")
    )


def visits_sink(database: JdbcConnectionOptions) -> JdbcSink:
    """Writes one row per visit."""
    return JdbcSink.upsert("visits", ["visitor", "begin_ts"], VISIT, database)


def show(database: JdbcConnectionOptions) -> None:
    """Print the longest visits, and totals."""
    longest = run_sql(
        database,
        "SELECT visitor, clicks, (end_ts - begin_ts) / 60000, entry_page, exit_page FROM visits "
        "ORDER BY end_ts - begin_ts DESC, visitor, begin_ts LIMIT 10",
    )
    ((visits, clicks),) = run_sql(database, "SELECT COUNT(*), COALESCE(SUM(clicks), 0) FROM visits")
    print(text_table(["visitor", "clicks", "minutes", "from", "to"], longest))
    print(f"{visits:,} visits of {int(clicks):,} clicks, in the table visits of {database.url}")


def main() -> None:
    """Run the job and show its results."""

    def add_pipeline(env: StreamExecutionEnvironment, options: JobOptions) -> None:
        stream = env.from_source(options.source, watermarks(), "clicks").uid("clicks")
        build(env, stream, visits_sink(options.database))

    run("sessionization", "Finds the visits of a web site.", [CREATE_VISITS], add_pipeline, show, clicks)


if __name__ == "__main__":
    main()
