"""HOP and CUMULATE over a CSV file."""

import os
import tempfile

from flinkish.table import EnvironmentSettings, TableEnvironment

path = os.path.join(tempfile.mkdtemp(), "bids.csv")
with open(path, "w") as file:
    for minute, item, price in (
        (5, "C", 4.0),
        (7, "A", 2.0),
        (9, "D", 5.0),
        (11, "B", 3.0),
        (13, "E", 1.0),
        (17, "F", 6.0),
    ):
        file.write(f"2020-04-15 08:{minute:02},{price},{item}\n".replace(",", ":00,", 1))
t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().get_configuration().set_string("parallelism.default", "1")
t_env.execute_sql(f"""
    CREATE TABLE Bid (
        bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING,
        WATERMARK FOR bidtime AS bidtime - INTERVAL '1' MINUTES
    ) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
""")
for name, window in (
    ("hop", "HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)"),
    (
        "cumulate",
        "CUMULATE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), STEP => INTERVAL '2' MINUTES, "
        "SIZE => INTERVAL '10' MINUTES)",
    ),
    ("tumble", "TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES, INTERVAL '1' MINUTES)"),
):
    result = t_env.execute_sql(
        "SELECT window_start, window_end, SUM(price) AS total, MAX(item) AS last_item, COUNT(*) AS n"
        f" FROM TABLE({window}) GROUP BY window_start, window_end"
    )
    with result.collect() as rows:
        for row in rows:
            print(name, *row)
