"""Counts words as they arrive: each occurrence updates the count."""

from flinkish.common import Types
from flinkish.datastream import FlatMapFunction, MapFunction, StreamExecutionEnvironment


class Tokenizer(FlatMapFunction):
    def flat_map(self, value):
        return [word for word in value.split(" ") if word]


class One(MapFunction):
    def map(self, value):
        return value, 1


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = env.from_collection(["hello flink", "hello  spark", "hello"])
    words = lines.flat_map(Tokenizer(), Types.STRING()).map(One(), Types.TUPLE([Types.STRING(), Types.INT()]))
    words.key_by(lambda pair: pair[0], key_type=Types.STRING()).sum(1).print()
    env.execute()
