"""Results come back into the program: execute_and_collect, with and without a limit."""

from flinkish.common import Row, Types
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.number_seq import NumberSequenceSource

if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(NumberSequenceSource(1, 5), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    with numbers.map(lambda n: n * n, Types.LONG()).execute_and_collect("squares") as squares:
        print(sum(squares))
    rows = env.from_collection(
        [("ann", 3), ("bob", 4)], Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    )
    for row in rows.map(lambda row: Row(row.name.upper(), row["age"] + 1), rows.get_type()).execute_and_collect():
        print(row)
    print(env.from_collection(["a", "b", "c"]).execute_and_collect(limit=2))
