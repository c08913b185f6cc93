"""The table functions of windows in SQL, over a table of a file with event time."""

import os
import tempfile

from flinkish.table import EnvironmentSettings, TableEnvironment

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "bids.json"), "w") as file:
    for second, item, price in [(1, "a", 10), (9, "b", 20), (12, "a", 30), (33, "b", 40)]:
        file.write(f'{{"bidtime": "2024-01-01 08:00:{second:02}", "item": "{item}", "price": {price}}}\n')
t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.execute_sql(f"""
    CREATE TABLE bid (bidtime TIMESTAMP(3), item STRING, price DECIMAL(10, 2),
        WATERMARK FOR bidtime AS bidtime - INTERVAL '5' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'json')
""")
for window in (
    "TUMBLE(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '10' SECONDS)",
    "HOP(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '10' SECONDS, INTERVAL '20' SECONDS)",
    "CUMULATE(TABLE bid, DESCRIPTOR(bidtime), INTERVAL '10' SECONDS, INTERVAL '1' MINUTE)",
):
    table = t_env.sql_query(
        f"SELECT window_start, window_end, SUM(price) AS total FROM TABLE({window}) GROUP BY window_start, window_end"
    )
    for row in table.execute().collect():
        print(window[:4], row[0], row[1], row[2])
