"""Counts how often words occur: the first program of every stream processor.

./spark-submit.sh jobs/word_count.py                 # lines from a generator; options: see --help
./spark-submit.sh jobs/word_count.py --events 5000   # that many lines
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flinkish.common import Types, WatermarkStrategy
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.examples.options import JobOptions, run, run_sql, text_table

CREATE_TABLE = "CREATE TABLE IF NOT EXISTS word_counts (word TEXT PRIMARY KEY, count BIGINT NOT NULL)"
WORD_COUNT = Types.TUPLE([Types.STRING(), Types.LONG()])
LINES = (
    "The stream goes on, and the river never ends;",
    "what has gone by is counted, what comes is not known.",
    "Who steps into the river steps into another stream.",
    "A word that is counted twice is a word that was said twice,",
    "and what was never said is never counted.",
)
LINES_PER_EPOCH = 50_000


def line(index: int) -> str:
    """The line with this index; after its last line the text starts over."""
    return LINES[index % len(LINES)]


def lines(events: int, users: int) -> DataGeneratorSource:
    """A source of that many lines; the number of users is ignored."""
    return DataGeneratorSource(line, events, Types.STRING(), records_per_epoch=LINES_PER_EPOCH, splits=2)


def words(text: str) -> Iterator[tuple[str, int]]:
    """The words of a line in lower case, each as (word, 1)."""
    return ((word, 1) for word in re.findall(r"\w+", text.lower()))


def build(text: DataStream, counts: Sink) -> None:
    """The pipeline: lines -> running (word, count) -> ``counts``."""
    (
        text.flat_map(words, WORD_COUNT)
        .uid("words")
        .key_by(lambda pair: pair[0])
        .sum(1)
        .uid("count")
        .sink_to(counts)
        .uid("word-counts")
    )


def counts_sink(database: JdbcConnectionOptions) -> JdbcSink:
    """Keeps one row per word up to date."""
    columns = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
    return JdbcSink.upsert("word_counts", ["word"], columns, database)


def show(database: JdbcConnectionOptions) -> None:
    """Print the ten most frequent words, and totals."""
    top = run_sql(database, "SELECT word, count FROM word_counts ORDER BY count DESC, word LIMIT 10")
    ((number, total),) = run_sql(database, "SELECT COUNT(*), COALESCE(SUM(count), 0) FROM word_counts")
    print(text_table(["word", "count"], top))
    print(f"{int(total):,} words, {number:,} of them different, in the table word_counts of {database.url}")


def main() -> None:
    """Run the job and show its results."""

    def add_pipeline(env: StreamExecutionEnvironment, options: JobOptions) -> None:
        text = env.from_source(options.source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
        build(text, counts_sink(options.database))

    run("word-count", "Counts words.", [CREATE_TABLE], add_pipeline, show, lines)


if __name__ == "__main__":
    main()
