"""Rules are broadcast to all tasks; each item waits, by a timer, until all the rules are there."""

from flinkish.common import Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.functions import KeyedBroadcastProcessFunction
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class ItemTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Limits(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.INT()))

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        self.waiting.add(value[1])
        ctx.timer_service().register_event_time_timer(60_000)

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext):
        key = ctx.get_current_key()
        limit = ctx.get_broadcast_state(RULES).get(key)
        for amount in self.waiting.get():
            yield f"{key}: {amount} > {limit}" if amount > limit else f"{key}: {amount} is fine"
        self.waiting.clear()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(ItemTime())
    items = env.from_collection([("a", 5), ("b", 7), ("a", 1), ("b", 2), ("a", 9)], pair)
    rules = env.from_collection([("a", 4), ("b", 6)], pair)
    keyed = items.assign_timestamps_and_watermarks(strategy).key_by(lambda item: item[0], Types.STRING())
    keyed.connect(rules.broadcast(RULES)).process(Limits(), Types.STRING()).print()
    env.execute("rules")
