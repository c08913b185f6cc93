"""The most viewed items of each sliding window: an aggregate, then a ranking by timers, as in the shop analyses."""

from flinkish.common import Types, WatermarkStrategy
from flinkish.common.time import Time
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.state import ListStateDescriptor
from flinkish.datastream.window import SlidingEventTimeWindows

VIEWS = [("a", 1), ("b", 2), ("a", 3), ("c", 11), ("b", 12), ("b", 13), ("a", 14)]


class ViewTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class WithWindow(ProcessWindowFunction[int, tuple, str, object]):
    def process(self, key, context, elements):
        yield key, context.window().end, next(iter(elements))


class Ranking(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.items = runtime_context.get_list_state(
            ListStateDescriptor("items", Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()]))
        )

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        self.items.add(value)
        ctx.timer_service().register_event_time_timer(value[1] + 1)

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        ranked = sorted(self.items.get(), key=lambda item: (-item[2], item[0]))
        self.items.clear()
        best = " ".join(f"{item}={count}" for item, _, count in ranked[:2])
        yield f"up to {(timestamp - 1) // 1000}: {best}"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    views = env.from_collection(VIEWS, type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
    timed = views.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ViewTime())
    )
    windows = timed.key_by(lambda view: view[0]).window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)))
    counted = windows.aggregate(
        Count(),
        window_function=WithWindow(),
        accumulator_type=Types.INT(),
        output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()]),
    )
    counted.key_by(lambda count: count[1]).process(Ranking(), Types.STRING()).print()
    env.execute("hot items")
