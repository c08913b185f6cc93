"""Descriptors: datagen into print, all in the Table API."""

from flinkish.table import DataTypes, EnvironmentSettings, Schema, TableDescriptor, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.create_temporary_table(
    "source",
    TableDescriptor.for_connector("datagen")
    .schema(Schema.new_builder().column("id", DataTypes.BIGINT()).column("data", DataTypes.STRING()).build())
    .option("fields.id.kind", "sequence")
    .option("fields.id.start", "1")
    .option("fields.id.end", "6")
    .option("fields.data.kind", "random")
    .option("fields.data.length", "1")
    .option("number-of-rows", "6")
    .build(),
)
t_env.create_temporary_table(
    "sink",
    TableDescriptor.for_connector("print")
    .schema(
        Schema.new_builder()
        .column("a", DataTypes.BIGINT())
        .column("n", DataTypes.INT())
        .column("odd", "BOOLEAN")
        .build()
    )
    .build(),
)
source = t_env.from_path("source")
table = source.select(col("id") + 1, col("data").char_length, (col("id") % 2 == 1).alias("odd"))
table.execute_insert("sink").wait()
