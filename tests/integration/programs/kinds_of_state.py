"""Each kind of keyed state: value, list, map, reducing and aggregating state."""

from flinkish.common import Types
from flinkish.common.time import Time
from flinkish.datastream import FlatMapFunction, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.functions import AggregateFunction, ReduceFunction
from flinkish.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


class Larger(ReduceFunction):
    def reduce(self, value1, value2):
        return max(value1, value2)


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Statistics(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        last = ValueStateDescriptor("last", Types.INT())
        ttl = StateTtlConfig.new_builder(Time.hours(1)).set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
        last.enable_time_to_live(ttl.disable_cleanup_in_background().build())
        self.last = runtime_context.get_state(last)
        self.top = runtime_context.get_list_state(ListStateDescriptor("top", Types.INT()))
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.INT(), Types.INT()))
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("max", Larger(), Types.INT()))
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.INT(), Types.INT()]))
        )

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        key, number = value
        before = self.last.value()
        self.last.update(number)
        self.top.update(sorted([*self.top.get(), number], reverse=True)[:3])
        seen = self.counts.get(number) if self.counts.contains(number) else 0
        self.counts.put(number, seen + 1)
        self.largest.add(number)
        self.mean.add(number)
        counts = dict(sorted(self.counts.items()))
        yield f"{key} {before} {list(self.top)} {counts} {self.largest.get()} {self.mean.get()}"


class PairSums(FlatMapFunction):
    """The average of each two values, as in PyFlink's page about state."""

    def open(self, runtime_context: RuntimeContext):
        pair = Types.PICKLED_BYTE_ARRAY()
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", pair))

    def flat_map(self, value):
        count, total = self.sum.value() or (0, 0)
        self.sum.update((count + 1, total + value[1]))
        if count + 1 >= 2:
            self.sum.clear()
            yield value[0], (total + value[1]) // 2


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection([("s1", 3), ("s1", 9), ("s2", 5), ("s1", 4), ("s1", 9)])
    keyed = numbers.key_by(lambda value: value[0], key_type=Types.STRING())
    keyed.process(Statistics(), output_type=Types.STRING()).print()
    keyed.flat_map(PairSums()).print()
    env.execute("state")
