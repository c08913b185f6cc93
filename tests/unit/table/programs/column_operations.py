"""Adds, renames, drops and replaces columns."""

from flinkish.table import EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col, concat

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
table = t_env.from_elements([(1, "a", 10), (2, "b", 20)], ["id", "name", "price"])
for one in (
    table.add_columns(concat(col("name"), "sunny").alias("desc")),
    table.add_or_replace_columns((col("price") * 2).alias("price")),
    table.drop_columns(col("name")),
    table.rename_columns(col("name").alias("n")),
    table.alias("a", "b", "c"),
    table.select(col("*")),
):
    print(one.get_schema().get_field_names())
    for row in one.execute().collect():
        print(row)
