"""GROUP BY with HAVING and FILTER in SQL."""

from flinkish.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.create_temporary_view(
    "orders", t_env.from_elements([("a", 10), ("b", 20), ("a", 30), ("c", 5)], ["who", "price"])
)
query = """
    SELECT who, SUM(price) AS total, COUNT(*) FILTER (WHERE price > 10) AS dear, AVG(price) AS mean
    FROM orders GROUP BY who HAVING SUM(price) >= 20
"""
for row in t_env.execute_sql(query).collect():
    print(row)
