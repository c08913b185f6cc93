"""Alerts for sensors that are too hot, even while a gateway is silent.

    ./spark-submit.sh jobs/iot_alerts.py            # options: see --help

A window fires when the watermarks of all gateways have passed it. The gateway in the south falls silent halfway; it is
then idle (``with_idleness``) and does not hold back the alerts of the north. A process function sends impossible
readings to a side output; a table of its own counts them per broken sensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flinkish.common import Duration, Row, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
)
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.examples.options import JobOptions, run, run_sql, text_table
from flinkish.examples.sensors import CELSIUS, GATEWAYS, READING, SENSOR, TS, Gateway

CREATE_ALERTS = (
    "CREATE TABLE IF NOT EXISTS alerts (sensor TEXT NOT NULL, window_start BIGINT NOT NULL, "
    "celsius DOUBLE PRECISION NOT NULL, readings BIGINT NOT NULL, PRIMARY KEY (sensor, window_start))"
)
CREATE_BROKEN = "CREATE TABLE IF NOT EXISTS broken_sensors (sensor TEXT PRIMARY KEY, readings BIGINT NOT NULL)"
#: sensor, start of the window (ms since 1970), mean temperature, number of readings
ALERT = Types.ROW_NAMED(
    ["sensor", "window_start", "celsius", "readings"], [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.LONG()]
)
BROKEN_COUNT = Types.ROW_NAMED(["sensor", "readings"], [Types.STRING(), Types.LONG()])
BROKEN = OutputTag("broken", READING)

WINDOW, TOO_HOT, POSSIBLE = Time.minutes(10), 60.0, (-90.0, 150.0)
OUT_OF_ORDER, IDLE_AFTER = Duration.of_seconds(1), Duration.of_seconds(2)
SILENT_EPOCHS = 10


class ReadingTime(TimestampAssigner):
    """Assigns the event time of a reading."""

    def extract_timestamp(self, value: tuple[str, float, int], record_timestamp: int) -> int:
        """The last field of the reading."""
        return value[TS]


def watermarks() -> WatermarkStrategy:
    """Watermarks of one gateway, which becomes idle while it is silent."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDER).with_idleness(IDLE_AFTER)
    return strategy.with_timestamp_assigner(ReadingTime())


class Possible(ProcessFunction):
    """Emits the possible readings; the others go to the side output."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        lowest, highest = POSSIBLE
        if lowest <= value[CELSIUS] <= highest:
            yield value
        else:
            yield BROKEN, value


class Mean(AggregateFunction):
    """Mean temperature; the accumulator is (sum of the temperatures, number of readings)."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: tuple[str, float, int], accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value[CELSIUS], accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator

    def merge(self, acc_a: tuple[float, int], acc_b: tuple[float, int]) -> tuple[float, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class TooHot(ProcessWindowFunction[tuple[float, int], Row, str, TimeWindow]):
    """Emits an alert for a window whose mean is too high."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple[float, int]]
    ) -> Iterable[Row]:
        for total, readings in elements:
            if total / readings > TOO_HOT:
                yield Row(key, context.window().start, round(total / readings, 1), readings)


def build(gateways: list[DataStream], alerts: Sink, broken: Sink) -> None:
    """The pipeline: the readings of each gateway -> ALERT -> ``alerts``; BROKEN_COUNT -> ``broken``."""
    first, *others = gateways
    readings = first.union(*others).process(Possible(), READING).uid("possible")
    (
        readings.key_by(lambda reading: reading[SENSOR])
        .window(TumblingEventTimeWindows.of(WINDOW))
        .aggregate(Mean(), TooHot(), output_type=ALERT)
        .uid("means")
        .sink_to(alerts)
        .uid("alerts")
    )
    (
        readings.get_side_output(BROKEN)
        .map(lambda reading: (reading[SENSOR], 1), Types.TUPLE([Types.STRING(), Types.LONG()]))
        .uid("one-per-reading")
        .key_by(lambda pair: pair[0])
        .sum(1)
        .uid("broken-count")
        .sink_to(broken)
        .uid("broken-sensors")
    )


def gateways(events: int, sensors: int) -> list[Gateway]:
    """Two gateways, one of which falls silent after half of its readings."""
    north, south = GATEWAYS
    return [
        Gateway(north, events // 2, sensors),
        Gateway(south, events // 4, sensors, silent_epochs=SILENT_EPOCHS),
    ]


def sinks(database: JdbcConnectionOptions) -> tuple[JdbcSink, JdbcSink]:
    """The sink of the alerts, and the sink of the broken sensors."""
    return (
        JdbcSink.upsert("alerts", ["sensor", "window_start"], ALERT, database),
        JdbcSink.upsert("broken_sensors", ["sensor"], BROKEN_COUNT, database),
    )


def show(database: JdbcConnectionOptions) -> None:
    """Print the sensors with the most alerts, and totals."""
    top = run_sql(
        database,
        "SELECT sensor, COUNT(*), MAX(celsius) FROM alerts GROUP BY sensor ORDER BY COUNT(*) DESC, sensor LIMIT 10",
    )
    ((alerts,),) = run_sql(database, "SELECT COUNT(*) FROM alerts")
    ((broken,),) = run_sql(database, "SELECT COUNT(*) FROM broken_sensors")
    print(text_table(["sensor", "alerts", "degrees"], top))
    print(
        f"{alerts:,} alerts, and {broken:,} broken sensors, in the tables alerts and broken_sensors of {database.url}"
    )


def main() -> None:
    """Run the job and show its results."""

    def add_pipeline(env: StreamExecutionEnvironment, options: JobOptions) -> None:
        streams = [
            env.from_source(gateway, watermarks(), name).uid(name)
            for name, gateway in zip(GATEWAYS, gateways(options.events, options.users), strict=True)
        ]
        build(streams, *sinks(options.database))

    run(
        "iot-alerts",
        "Alerts for sensors that run hot.",
        [CREATE_ALERTS, CREATE_BROKEN],
        add_pipeline,
        show,
        lambda events, sensors: gateways(events, sensors)[0],
    )


if __name__ == "__main__":
    main()
