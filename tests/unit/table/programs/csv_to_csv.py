"""Reads a CSV file and writes another one, all in SQL."""

import os
import tempfile

from flinkish.table import EnvironmentSettings, TableEnvironment

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "in.csv"), "w") as file:
    file.write("1,ann,10.5\n2,bob,20\n3,cid,30.25\n")
t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.execute_sql(f"""
    CREATE TABLE source (id BIGINT, name STRING, price DOUBLE) WITH (
        'connector' = 'filesystem', 'path' = 'file://{folder}/in.csv', 'format' = 'csv')
""")
t_env.execute_sql(f"""
    CREATE TABLE sink (name STRING, price DOUBLE, kind STRING) WITH (
        'connector' = 'filesystem', 'path' = 'file://{folder}/out', 'format' = 'csv')
""")
t_env.execute_sql("""
    INSERT INTO sink SELECT UPPER(name), price * 2, CASE WHEN price > 20 THEN 'dear' ELSE 'cheap' END FROM source
""").wait()
for directory, _, names in os.walk(os.path.join(folder, "out")):
    for name in names:
        with open(os.path.join(directory, name)) as file:
            print(file.read(), end="")
