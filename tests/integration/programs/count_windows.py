"""Windows of two records, of each key and of all."""

from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment, WindowFunction


class Sum(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, sum(value[0] for value in inputs))]


class Values(WindowFunction):
    def apply(self, key, window, inputs):
        yield "+".join(str(value[0]) for value in inputs)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    pairs = env.from_collection(
        [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hi"), (6, "hello"), (6, "hello")],
        type_info=Types.TUPLE([Types.INT(), Types.STRING()]),
    )
    by_word = pairs.key_by(lambda x: x[1], key_type=Types.STRING())
    by_word.count_window(2).apply(Sum(), Types.TUPLE([Types.STRING(), Types.INT()])).print()
    pairs.key_by(lambda x: "all", Types.STRING()).count_window(3).apply(Values(), Types.STRING()).print()
    env.execute()
