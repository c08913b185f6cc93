"""Takes fields out of texts of JSON."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
table = t_env.from_elements(
    [
        (1, '{"name": "Flink", "tel": 123, "addr": {"country": "Germany", "city": "Berlin"}}'),
        (2, '{"name": "hello", "tel": 135, "addr": {"country": "China", "city": "Shanghai"}}'),
        (3, '{"name": null}'),
    ],
    ["id", "data"],
)
picked = table.select(col("id"), col("data").json_value("$.addr.country", DataTypes.STRING()).alias("country"))
for row in picked.execute().collect():
    print(row)
t_env.create_temporary_view("t", table)
for row in (
    t_env.sql_query(
        "SELECT id, JSON_VALUE(data, '$.name') AS n, JSON_VALUE(data, '$.tel' RETURNING INT) + 1 AS t FROM t"
    )
    .execute()
    .collect()
):
    print(row)
