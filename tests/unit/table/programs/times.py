"""Functions of times."""

from flinkish.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.get_config().set_local_timezone("UTC")
t_env.create_temporary_view(
    "t", t_env.from_elements([("2024-02-28 23:59:58", 1709164798123), ("2024-12-31 12:00:00", 0)], ["s", "ms"])
)
query = """
    SELECT TO_TIMESTAMP(s) AS ts, DATE_FORMAT(TO_TIMESTAMP(s), 'yyyy/MM/dd HH:mm') AS f,
      EXTRACT(DAY FROM TO_TIMESTAMP(s)) AS d, CAST(TO_TIMESTAMP_LTZ(ms, 3) AS STRING) AS l,
      TO_TIMESTAMP(s) + INTERVAL '2' DAY AS later, FLOOR(TO_TIMESTAMP(s) TO HOUR) AS h,
      TIMESTAMPDIFF(DAY, TO_TIMESTAMP(s), TIMESTAMP '2025-01-01 00:00:00') AS days,
      TO_DATE(SUBSTRING(s, 1, 10)) AS dt
    FROM t
"""
for row in t_env.sql_query(query).execute().collect():
    print(list(row))
