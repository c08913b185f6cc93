"""A stream, SQL over it, and a keyed function behind the query."""

from flinkish.common import Row, Types
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.table import DataTypes, Schema, StreamTableEnvironment
from flinkish.table.expressions import col

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(env)


class Sum(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value, ctx):
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        yield Row(value[0], total)


ds = env.from_collection([(1, "aaa|bb"), (2, "bb|a"), (3, "aaa|a")], type_info=Types.ROW([Types.INT(), Types.STRING()]))
table = t_env.from_data_stream(ds, col("id"), col("text"))
table.print_schema()
t_env.create_temporary_view("texts", table)
query = t_env.sql_query("SELECT SPLIT_INDEX(text, '|', 0) AS w, CHAR_LENGTH(text) AS n FROM texts WHERE id > 0")
out = (
    t_env.to_data_stream(query)
    .key_by(lambda row: row[0], key_type=Types.STRING())
    .process(Sum(), output_type=Types.ROW([Types.STRING(), Types.LONG()]))
)
back = t_env.from_data_stream(
    out, Schema.new_builder().column("f0", DataTypes.STRING()).column("f1", DataTypes.BIGINT()).build()
)
for row in back.select(col("f0"), col("f1") + 1).execute().collect():
    print(row)
t_env.to_append_stream(back.where(col("f1") > 5), Types.ROW([Types.STRING(), Types.LONG()])).map(
    lambda row: f"{row[0]}={row[1]}", Types.STRING()
).print()
t_env.to_retract_stream(t_env.sql_query("SELECT COUNT(*) FROM texts WHERE id > 9"), Types.ROW([Types.LONG()])).print()
env.execute()
