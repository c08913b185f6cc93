"""A function of the program that is a class with an open()."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col
from flinkish.table.udf import ScalarFunction, udf


class Factor(ScalarFunction):
    def open(self, function_context):
        self.factor = 3

    def eval(self, value, *others):
        return value * self.factor + sum(others)


factor = udf(Factor(), result_type=DataTypes.BIGINT())
t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
table = t_env.from_elements([(1, 10), (2, 20)], ["a", "b"])
for row in table.select(factor(col("a")), factor(col("a"), col("b"))).execute().collect():
    print(row)
