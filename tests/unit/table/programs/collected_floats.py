from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
readings = t_env.from_elements(
    [("attic", 36.6, [0.1, 2.5]), ("cellar", None, [])],
    DataTypes.ROW([
        DataTypes.FIELD("room", DataTypes.STRING()),
        DataTypes.FIELD("degrees", DataTypes.FLOAT()),
        DataTypes.FIELD("others", DataTypes.ARRAY(DataTypes.FLOAT())),
    ]),
)  # fmt: skip
with (
    readings.select(col("room"), col("degrees"), col("others"), col("degrees").cast(DataTypes.DOUBLE()))
    .execute()
    .collect() as rows
):
    for row in rows:
        print([*row])
t_env.create_temporary_view("readings", readings)
with t_env.execute_sql(
    "SELECT SUM(degrees), CAST(MAX(room) AS VARCHAR) || '!', CAST(x'0102' AS BINARY(3)) FROM readings "
    "WHERE degrees > 36"
).collect() as rows:
    for row in rows:
        print(row[0], row[1], bytes(row[2]))
