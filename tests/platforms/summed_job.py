"""A job that counts per key in `EPOCHS` epochs, and writes each count into a database of SQLite.

``python -m tests.platforms.summed_job FOLDER [key=value ...]`` runs it with these settings until its input has ended;
the database is in the folder.
"""

from __future__ import annotations

import sys

from flinkish.common import Configuration, Row, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.datastream import StreamExecutionEnvironment
from tests.integration.engine.counting_job import COUNT, KEYS

EPOCHS, PER_EPOCH = 60, 20
RECORDS = EPOCHS * PER_EPOCH


def main() -> None:
    """Runs the job."""
    folder, *settings = sys.argv[1:]
    configuration = Configuration()
    for setting in settings:
        configuration.set_string(*setting.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = DataGeneratorSource(lambda i: (i % KEYS, 1), RECORDS, records_per_epoch=PER_EPOCH, splits=2)
    ones = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counts = ones.key_by(lambda e: e[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder}/out.db").build()
    rows = counts.map(lambda e: Row(e[0], e[1]), COUNT)
    rows.add_sink(JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", COUNT, url)).uid("database")
    env.execute("summed")


if __name__ == "__main__":
    main()
