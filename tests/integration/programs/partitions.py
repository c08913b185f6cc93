"""Streams are united and spread over two tasks in each way there is; the sum does not depend on it."""

from flinkish.common import Types
from flinkish.datastream import FilterFunction, Partitioner, StreamExecutionEnvironment
from flinkish.datastream.functions import MapFunction, RuntimeContext


class ById(Partitioner):
    def partition(self, key: int, num_partitions: int) -> int:
        return key % num_partitions


class Even(FilterFunction):
    def filter(self, value):
        return value % 2 == 0


class WithTask(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.task = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return f"{value} in task {self.task}"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    left, right = env.from_collection([1, 2, 3], Types.INT()), env.from_collection([10, 20], Types.INT())
    both = left.union(right, env.from_collection([400], Types.INT()))
    placed = both.partition_custom(ById(), lambda value: value).map(WithTask(), Types.STRING())
    placed.print().set_parallelism(1)
    for number, stream in enumerate([both.rebalance(), both.shuffle(), both.rescale(), both]):
        sums = stream.filter(Even()).map(lambda value, n=number: (n, value)).key_by(lambda pair: pair[0])
        total = sums.reduce(lambda a, b: (a[0], a[1] + b[1])).filter(lambda pair: pair[1] == 432)
        total.print().set_parallelism(1)
    env.execute("partitions")
