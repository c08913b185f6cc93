"""A source of numbered rows and the print connector."""

from flinkish.table import DataTypes, EnvironmentSettings, Schema, TableDescriptor, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.execute_sql("""
    CREATE TABLE numbers (n INT) WITH (
        'connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '5')
""")
t_env.create_temporary_table(
    "sink",
    TableDescriptor.for_connector("print")
    .schema(Schema.new_builder().column("n", DataTypes.INT()).column("square", DataTypes.INT()).build())
    .build(),
)
t_env.from_path("numbers").select(col("n"), col("n") * col("n")).execute_insert("sink").wait()
