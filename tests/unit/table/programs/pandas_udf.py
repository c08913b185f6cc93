"""A function of the program that gets columns."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col
from flinkish.table.udf import udf


@udf(result_type=DataTypes.DOUBLE(), func_type="pandas")
def scaled(x, y):
    return x * 2 + y


t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
table = t_env.from_elements([(1.5, 1.0), (2.5, 2.0), (4.0, 0.5)], ["x", "y"])
for row in table.select(col("x"), scaled(col("x"), col("y")).alias("z")).where(col("z") > 4).execute().collect():
    print(row)
