"""Rows go into a table of a database by an upsert; then the table is read."""

import os
import sqlite3
import tempfile

from flinkish.common import Row, Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink

if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(), "shop.db")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    kind = Types.ROW([Types.INT(), Types.STRING(), Types.DOUBLE()])
    rows = env.from_collection([(1, "pen", 1.5), (2, "book", 20.0), (1, "pen", 1.25)], kind)
    changed = rows.map(lambda row: Row(row[0], row[1].upper(), row[2]), kind)
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{path}")
    changed.add_sink(
        JdbcSink.sink(
            "INSERT INTO items (id, name, price) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, price = excluded.price",
            kind,
            options.with_driver_name("org.sqlite.JDBC").build(),
            JdbcExecutionOptions.builder().with_batch_interval_ms(200).with_batch_size(100).build(),
        )
    )
    env.execute("database")
    with sqlite3.connect(path) as database:
        for item in database.execute("SELECT * FROM items ORDER BY id"):
            print(*item)
