"""The main job: clicks of logged-in users, counted per user, exactly once.

    ./spark-submit.sh jobs/click_count.py                                              # no server needed
    ./spark-submit.sh jobs/click_count.py --bootstrap-servers broker:9092 --topic clicks \\
        --jdbc-url postgresql://host/db --job-dir /shared/click-count

If the job is stopped (SIGTERM, Ctrl-C) or killed and started again with the same job directory, it goes on where it
was. The table ``click_counts`` counts every click exactly once.
"""

from __future__ import annotations

from flinkish.common import Types, WatermarkStrategy
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.examples.clicks import LOGGED_IN, USER_ID
from flinkish.examples.options import EXAMPLE_SERVERS, parse, run_sql, text_table

CREATE_TABLE = "CREATE TABLE IF NOT EXISTS click_counts (user_id TEXT PRIMARY KEY, clicks BIGINT NOT NULL)"


def build(env: StreamExecutionEnvironment, clicks: DataStream, sink: Sink) -> None:
    """The pipeline: ``clicks`` (as in `flinkish.examples.clicks`) -> running (user_id, clicks) -> ``sink``.

    ``env`` is the environment of ``clicks``; settings that the pipeline needs can be made here.
    """
    (
        clicks.filter(lambda click: click[LOGGED_IN])
        .uid("logged-in")
        .map(lambda click: (click[USER_ID], 1), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .uid("one-per-click")
        .key_by(lambda pair: pair[0])
        .sum(1)
        .uid("count")
        .sink_to(sink)
        .uid("click-counts")
    )


def counts_sink(database: JdbcConnectionOptions) -> JdbcSink:
    """Keeps one row per user up to date."""
    columns = Types.ROW_NAMED(["user_id", "clicks"], [Types.STRING(), Types.LONG()])
    return JdbcSink.upsert("click_counts", ["user_id"], columns, database)


def show(database: JdbcConnectionOptions) -> None:
    """Print the ten users who clicked most, and totals."""
    top = run_sql(database, "SELECT user_id, clicks FROM click_counts ORDER BY clicks DESC, user_id LIMIT 10")
    ((users, clicks),) = run_sql(database, "SELECT COUNT(*), COALESCE(SUM(clicks), 0) FROM click_counts")
    print(text_table(["user", "clicks"], top))
    print(f"{users:,} users, {int(clicks):,} clicks of logged-in users, in the table click_counts of {database.url}")


def main() -> None:
    """Run the job and show its results."""
    options = parse("click-count", "Counts the clicks of logged-in users.")
    run_sql(options.database, CREATE_TABLE)
    env = StreamExecutionEnvironment.get_execution_environment(options.configuration)
    clicks = env.from_source(options.source, WatermarkStrategy.no_watermarks(), "clicks").uid("clicks")
    build(env, clicks, counts_sink(options.database))
    env.execute("click-count")
    show(options.database)
    if options.embedded:
        print(f"With Kafka and PostgreSQL, add: {EXAMPLE_SERVERS}")


if __name__ == "__main__":
    main()
