"""Aggregate functions of the Table API."""

from flinkish.table import EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col, lit

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
table = t_env.from_elements([("a", 1, 1.5), ("a", 3, 2.5), ("b", 5, 0.5), ("a", 3, 4.0)], ["k", "n", "x"])
grouped = table.group_by(col("k"))
for row in (
    grouped.select(col("k"), col("n").sum, col("n").avg, col("n").min, col("n").max, col("n").count).execute().collect()
):
    print(row)
for row in (
    grouped.select(col("k"), col("n").count.distinct, col("x").sum.alias("s"), lit(1).count.alias("c"))
    .filter(col("c") > 1)
    .execute()
    .collect()
):
    print(row)
for row in table.select(col("n").sum, col("x").max).execute().collect():
    print(row)
