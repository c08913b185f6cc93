"""map() with a function of rows."""

from flinkish.common import Row
from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.udf import udf


@udf(
    result_type=DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT()), DataTypes.FIELD("text", DataTypes.STRING())])
)
def doubled(row: Row) -> Row:
    return Row(row[0] * 2, row[1] * 2)


t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
table = t_env.from_elements([(1, "Hi"), (2, "Hello")], ["id", "data"])
for row in table.map(doubled).execute().collect():
    print(row)
