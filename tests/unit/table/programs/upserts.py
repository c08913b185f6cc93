from flinkish.common import Row, RowKind, Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.table import ChangelogMode, Schema, StreamTableEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(env)
changes = [
    Row.of_kind(RowKind.INSERT, 5, "pears", "north"),
    Row.of_kind(RowKind.INSERT, 3, "plums", "south"),
    Row.of_kind(RowKind.UPDATE_AFTER, 9, "pears", "south"),
    Row.of_kind(RowKind.UPDATE_AFTER, 1, "figs", "north"),
    Row.of_kind(RowKind.DELETE, 3, "plums", "south"),
]
stream = env.from_collection(
    changes, Types.ROW_NAMED(["boxes", "fruit", "store"], [Types.INT(), Types.STRING(), Types.STRING()])
)
stock = t_env.from_changelog_stream(stream, Schema.new_builder().primary_key("fruit").build(), ChangelogMode.upsert())
t_env.create_temporary_view("stock", stock)
totals = t_env.sql_query("SELECT store, SUM(boxes) AS boxes FROM stock GROUP BY store")
left: dict[str, int] = {}
with totals.execute().collect() as rows:
    for row in rows:
        if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            left[row[0]] = row[1]
        else:
            left.pop(row[0], None)
print(sorted(left.items()))
print(stock.get_schema().get_field_data_type("boxes"), stock.get_schema().get_field_data_type("fruit"))
