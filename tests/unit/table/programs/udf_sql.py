"""Python functions registered under names and called in SQL."""

import json
from datetime import datetime

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.udf import ScalarFunction, udf


class Hash(ScalarFunction):
    def __init__(self):
        self.factor = 12

    def eval(self, s):
        return sum(map(ord, s)) * self.factor


@udf(input_types=[DataTypes.STRING(), DataTypes.STRING()], result_type=DataTypes.STRING())
def json_value(text, key):
    return str(json.loads(text).get(key))


@udf(result_type=DataTypes.BIGINT())
def weekday(s):
    return datetime.strptime(s, "%Y-%m-%d").weekday()


t_env = TableEnvironment.create(EnvironmentSettings.new_instance().in_batch_mode().build())
t_env.create_temporary_function("hash_it", udf(Hash(), result_type=DataTypes.BIGINT()))
t_env.create_temporary_system_function("json_value2", json_value)
t_env.create_temporary_function("weekday", weekday)
t_env.create_temporary_function("add_one", udf(lambda i: i + 1, result_type="BIGINT"))
t_env.create_temporary_view(
    "events",
    t_env.from_elements(
        [('{"user": "ann", "n": 1}', "2024-05-01"), ('{"user": "bob"}', "2024-05-04")], ["payload", "day"]
    ),
)
t_env.execute_sql(
    "SELECT json_value2(payload, 'user') AS u, json_value2(payload, 'n') AS n, hash_it(`day`), weekday(`day`),"
    " add_one(weekday(`day`)) AS later FROM events"
).print()
for row in (
    t_env.sql_query("SELECT weekday(`day`) d, COUNT(*) c FROM events GROUP BY weekday(`day`)").execute().collect()
):
    print(row[0], row[1])
