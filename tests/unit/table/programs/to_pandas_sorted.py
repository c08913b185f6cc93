"""A DataFrame in, a query, a DataFrame out."""

import pandas as pd

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col, concat, if_then_else, lit
from flinkish.table.udf import udf

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
frame = pd.DataFrame({"name": ["a", "b", "c", "d"], "x": [1.5, float("nan"), 2.5, 4.0], "n": [1, 2, 3, 4]})
table = t_env.from_pandas(frame, ["name", "x", "n"])
table.print_schema()


@udf(result_type=DataTypes.BIGINT(), func_type="pandas")
def plus(a, b):
    return a + b


result = table.filter(col("n") > 1).select(
    concat(col("name"), lit("-"), col("n").cast(DataTypes.STRING())).alias("label"),
    plus(col("n"), col("n")).alias("twice"),
    if_then_else(col("x").is_null, lit(0.0), col("x")).alias("x"),
)
back = result.to_pandas()
print(back.sort_values("label").to_string())
print(list(back.dtypes))
grouped = table.group_by((col("n") % 2).alias("odd")).select(
    col("odd"), col("x").sum.alias("s"), col("n").max.alias("m")
)
print(grouped.to_pandas().sort_values("odd").to_string())
