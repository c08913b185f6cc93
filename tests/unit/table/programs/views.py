"""Views over views, WITH and UNION ALL."""

from flinkish.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.create_temporary_view("a", t_env.from_elements([(1, "x"), (2, "y")], ["id", "s"]))
t_env.execute_sql("CREATE TEMPORARY VIEW b AS SELECT id * 10 AS id, s || '!' AS s FROM a")
t_env.create_temporary_view("c", t_env.sql_query("SELECT * FROM a UNION ALL SELECT * FROM b"))
query = "WITH big AS (SELECT * FROM c WHERE id > 1) SELECT s, id FROM big"
for row in t_env.sql_query(query).execute().collect():
    print(row)
print(sorted(t_env.list_temporary_views()))
print(t_env.drop_temporary_view("c"))
