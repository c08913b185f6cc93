"""Selects columns and rows of a table of elements."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
orders = t_env.from_elements(
    [(1, "Jack", "FRANCE", 10.0), (2, "Rose", "ENGLAND", 30.0), (3, "Jack", "FRANCE", 20.0)],
    DataTypes.ROW(
        [
            DataTypes.FIELD("id", DataTypes.BIGINT()),
            DataTypes.FIELD("name", DataTypes.STRING()),
            DataTypes.FIELD("country", DataTypes.STRING()),
            DataTypes.FIELD("revenue", DataTypes.DOUBLE()),
        ]
    ),
)
result = orders.where(col("country") == "FRANCE").select(col("name"), (col("revenue") + 1).alias("revenue"))
with result.execute().collect() as rows:
    for row in rows:
        print(row)
