"""A GROUP BY with HAVING into a print sink by a view, with an old explain."""

from flinkish.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.execute_sql("""
    CREATE TEMPORARY VIEW sales AS
    SELECT * FROM (VALUES ('Berlin', 'tea', 3, 2.50), ('Berlin', 'milk', 1, 1.20), ('Rome', 'tea', 5, 2.75),
      ('Rome', 'tea', 1, CAST(NULL AS DECIMAL(3, 2))), ('Oslo', 'milk', 9, 0.99)) AS t (city, item, quantity, price)
""")
t_env.execute_sql("""
    CREATE TABLE out_table (city STRING, total DECIMAL(38, 2), items BIGINT, cheap DECIMAL(3, 2), kinds STRING)
    WITH ('connector' = 'print')
""")
statement = """
    INSERT INTO out_table
    WITH priced AS (SELECT city, item, quantity * price AS amount, price FROM sales WHERE item <> 'juice')
    SELECT city, SUM(amount), COUNT(DISTINCT item), MIN(price), LISTAGG(DISTINCT item)
    FROM priced GROUP BY city HAVING COUNT(*) > 1
"""
t_env.execute_sql(statement).wait()
print("explained" if len(t_env.explain_sql(statement)) > 50 else "nothing")
print([row[0] for row in t_env.execute_sql("SHOW TABLES").collect()])
t_env.execute_sql("DESCRIBE out_table").print()
