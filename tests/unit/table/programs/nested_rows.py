"""Rows in rows, arrays and maps."""

from flinkish.common import Row
from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
place = DataTypes.ROW([DataTypes.FIELD("city", DataTypes.STRING()), DataTypes.FIELD("zip", DataTypes.INT())])
table = t_env.from_elements(
    [(1, Row("Bonn", 53111), ["a", "b"], {"k": 1}), (2, Row(None, 2), [], {})],
    DataTypes.ROW(
        [
            DataTypes.FIELD("id", DataTypes.BIGINT()),
            DataTypes.FIELD("place", place),
            DataTypes.FIELD("tags", DataTypes.ARRAY(DataTypes.STRING())),
            DataTypes.FIELD("scores", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT())),
        ]
    ),
)
for row in (
    table.select(col("id"), col("place").get("city"), col("tags").at(1), col("scores").at("k")).execute().collect()
):
    print(row)
t_env.create_temporary_view("t", table)
for row in (
    t_env.sql_query("SELECT t.place.zip + 1, tags[2], CARDINALITY(tags), scores['k'] FROM t").execute().collect()
):
    print(row)
