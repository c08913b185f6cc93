"""Sessions with a fixed gap, and with one that the record gives."""

from collections.abc import Iterable

from flinkish.common import Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import ProcessWindowFunction, WindowFunction
from flinkish.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor, Time, TimeWindow

EVENTS = [("hi", 1), ("hi", 2), ("hi", 3), ("hi", 4), ("hi", 8), ("hi", 9), ("hi", 15)]


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp) -> int:
        return int(value[1])


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element: tuple) -> int:
        return element[1]


class CountBounds(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple]):
        return [(key, context.window().start, context.window().end, len([e for e in elements]))]  # noqa: C416

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        pass


class CountOnly(WindowFunction[tuple, tuple, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs: Iterable[tuple]):
        return [("dynamic", window.start, window.end, len(list(inputs)))]


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    events = env.from_collection(EVENTS, type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    keyed = events.assign_timestamps_and_watermarks(strategy).key_by(lambda x: x[0], key_type=Types.STRING())
    output = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()])
    keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(5))).process(CountBounds(), output).print()
    keyed.window(EventTimeSessionWindows.with_dynamic_gap(Gap())).apply(CountOnly(), output).print()
    env.execute("sessions")
