"""UNION ALL and DISTINCT."""

from flinkish.table import EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
left = t_env.from_elements([(1, "a"), (2, "b"), (2, "b")], ["id", "s"])
right = t_env.from_elements([(2, "b"), (3, "c")], ["id", "s"])
for row in left.union_all(right).select(col("s")).execute().collect():
    print(row)
for row in left.union_all(right).distinct().execute().collect():
    print("distinct", row)
