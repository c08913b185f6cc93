"""Rows of VALUES into a table of files, and out again."""

import tempfile

from flinkish.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.execute_sql(f"""
    CREATE TABLE people (id INT, name STRING, born DATE) WITH (
        'connector' = 'filesystem', 'path' = '{tempfile.mkdtemp()}', 'format' = 'json')
""")
t_env.execute_sql("INSERT INTO people VALUES (1, 'ann', DATE '2000-01-31'), (2, 'bob', DATE '1999-12-31')").wait()
t_env.execute_sql("INSERT INTO people (name, id) SELECT UPPER(name), id + 10 FROM people").wait()
for row in t_env.sql_query("SELECT * FROM people").execute().collect():
    print(row)
