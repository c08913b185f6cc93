"""Values of many types through a table."""

import datetime
from decimal import Decimal

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
columns = {
    "a": DataTypes.BIGINT(),
    "b": DataTypes.BOOLEAN(),
    "c": DataTypes.INT(),
    "d": DataTypes.STRING(),
    "e": DataTypes.DATE(),
    "f": DataTypes.TIMESTAMP(3),
    "g": DataTypes.DECIMAL(38, 18),
    "h": DataTypes.DOUBLE(),
    "i": DataTypes.ARRAY(DataTypes.DOUBLE()),
    "j": DataTypes.MAP(DataTypes.STRING(), DataTypes.BIGINT()),
    "k": DataTypes.TINYINT(),
    "l": DataTypes.SMALLINT(),
}
values = (
    1, True, 2147483647, "text", datetime.date(2014, 9, 13), datetime.datetime(2018, 3, 11, 3, 1, 12, 123000),
    Decimal("1000000000000000000.05"), 1.5, [1.0, 2.0], {"x": 1}, 3, 4,
)  # fmt: skip
table = t_env.from_elements([values, (None,) * 12], DataTypes.ROW([DataTypes.FIELD(n, t) for n, t in columns.items()]))
table.print_schema()
for row in table.execute().collect():
    for value in row:
        print(repr(value))
