"""Counts words in a batch environment with SQL."""

from flinkish.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
words = "to be or not to be that is the question".split()
t_env.create_temporary_view("words", t_env.from_elements([(word,) for word in words], ["word"]))
with t_env.sql_query("SELECT word, COUNT(*) AS n FROM words GROUP BY word").execute().collect() as rows:
    for row in rows:
        print(row[0], row[1])
