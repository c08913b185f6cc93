"""The rolling aggregations of a keyed stream, by position and by name."""

from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment

if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    data = [("a", 3, "x"), ("a", 1, "y"), ("b", 5, "z"), ("a", 2, "w"), ("a", 1, "v")]
    triples = env.from_collection(data, Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING()]))
    keyed = triples.key_by(lambda value: value[0])
    keyed.min(1).map(lambda value: ("min", *value)).print()
    keyed.max_by(1).map(lambda value: ("max_by", *value)).print()
    keyed.min_by(1).map(lambda value: ("min_by", *value)).print()
    rows = env.from_collection(data, Types.ROW_NAMED(["k", "n", "s"], [Types.STRING(), Types.INT(), Types.STRING()]))
    rows.key_by(lambda row: row.k).sum("n").map(lambda row: ("sum", row.k, row.n, row.s)).print()
    env.execute()
