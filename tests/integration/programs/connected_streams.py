"""Orders and payments meet, whichever comes first; two streams of other types become one."""

from flinkish.common import Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import CoMapFunction, KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor


class ThirdField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Match(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.STRING()))
        self.payment = runtime_context.get_state(ValueStateDescriptor("payment", Types.STRING()))

    def process_element1(self, value, ctx: "KeyedCoProcessFunction.Context"):
        if self.payment.value() is not None:
            yield f"{value[0]}: {value[1]} paid by {self.payment.value()}"
            self.payment.clear()
        else:
            self.order.update(value[1])
            ctx.timer_service().register_event_time_timer(value[2] + 1000)

    def process_element2(self, value, ctx: "KeyedCoProcessFunction.Context"):
        if self.order.value() is not None:
            yield f"{value[0]}: {self.order.value()} paid by {value[1]}"
            self.order.clear()
        else:
            self.payment.update(value[1])
            ctx.timer_service().register_event_time_timer(value[2] + 1000)

    def on_timer(self, timestamp: int, ctx: "KeyedCoProcessFunction.OnTimerContext"):
        for name, state in (("payment", self.order), ("order", self.payment)):
            if state.value() is not None:
                yield f"{ctx.get_current_key()}: no {name} for {state.value()}"
                state.clear()


class Texts(CoMapFunction):
    def map1(self, value):
        return f"number {value}"

    def map2(self, value):
        return f"text {value}"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    kind = Types.TUPLE([Types.INT(), Types.STRING(), Types.LONG()])
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(ThirdField())
    orders = env.from_collection([(1, "book", 100), (2, "pen", 200), (3, "cup", 300)], kind)
    payments = env.from_collection([(3, "card", 150), (1, "cash", 250), (4, "card", 260)], kind)
    by_id = [
        stream.assign_timestamps_and_watermarks(strategy).key_by(lambda record: record[0], Types.INT())
        for stream in (orders, payments)
    ]
    by_id[0].connect(by_id[1]).process(Match(), Types.STRING()).print()
    numbers, texts = env.from_collection([1, 2], Types.INT()), env.from_collection(["x"], Types.STRING())
    numbers.connect(texts).map(Texts(), Types.STRING()).print()
    env.execute("connected")
