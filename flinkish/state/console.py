"""The driver of ``flinkish sql [-e QUERY] [JOB_DIR]``: Spark SQL with the tables of a job as views.

``state`` is the state of the latest completed checkpoint, or of the savepoint that is given, as texts;
``"<uid>.<state>"`` is one declared state in its types, as `read_state` gives it. ``jobs``, ``executions``,
``exceptions`` and ``checkpoints`` are the tables of the history; ``savepoints`` are those of its checkpoints that are
savepoints.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from pyspark.errors import PySparkException

from flinkish.checkpoint.manifest import Manifest
from flinkish.errors import FlinkishError, SavepointError
from flinkish.jobmanager.history import TABLES
from flinkish.jobmanager.history_tables import history_path
from flinkish.state.reading import open_snapshot, rows_of, session_of, states_in
from flinkish.storage.files import child_names
from flinkish.storage.paths import absolute, for_spark

#: A statement shows at most so many rows.
MAX_ROWS = 1_000
#: A job has at most so many views of single states.
MAX_STATES = 20

#: What a semicolon has no meaning in: texts, quoted names and comments; then the semicolon.
_PARTS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(;)""", re.DOTALL)
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def statements(text: str) -> list[str]:
    """The statements of a text of SQL, which are separated by semicolons."""
    ends = [match.start(1) for match in _PARTS.finditer(text) if match[1]]
    parts = [text[begin:end] for begin, end in zip([0, *(end + 1 for end in ends)], [*ends, len(text)])]
    return [part.strip() for part in parts if _COMMENTS.sub("", part).strip()]


def add_views(spark: Any, directory: str) -> list[str]:
    """Make the views of a job's directory, of its checkpoint or of a savepoint in a session. Returns their names.

    Raises:
        SavepointError: there is nothing of a job, or the savepoint is damaged.
    """
    kept = child_names(posixpath.join(directory, "history"))
    frames = {
        table: spark.read.format("delta").load(for_spark(history_path(directory, table)))
        for table in TABLES
        if table in kept
    }
    if "checkpoints" in frames:
        frames["savepoints"] = frames["checkpoints"].where("is_savepoint AND status = 'COMPLETED'")
    try:
        savepoint = open_snapshot(directory)
        states = states_in(savepoint, spark)
    except SavepointError:
        # a job whose first checkpoint is still to come has a history only
        if not frames or Manifest.NAME in child_names(directory):
            raise
    else:
        frames["state"] = rows_of(spark, savepoint)
        for one in [one for one in states if one.value_type is not None][:MAX_STATES]:
            frames[f"{one.uid}.{one.state}"] = rows_of(spark, savepoint, one.uid, one.state)
    for name, frame in frames.items():
        frame.createOrReplaceTempView("`{}`".format(name.replace("`", "``")))
    return list(frames)


def run(spark: Any, statement: str) -> None:
    """Run a statement and print its rows, at most `MAX_ROWS` of them."""
    frame = spark.sql(statement)
    if not frame.columns:
        return
    rows = frame.take(MAX_ROWS + 1)
    spark.createDataFrame(rows[:MAX_ROWS], frame.schema).show(MAX_ROWS, truncate=False)
    if len(rows) > MAX_ROWS:
        print(f"the first {MAX_ROWS} rows; narrow the query to see others")


def typed(lines: Iterable[str]) -> Iterator[str]:
    """The statements of lines that somebody types; each ends with a semicolon at the end of a line."""
    text = ""
    for line in lines:
        if not text and line.strip().rstrip(";").lower() in ("exit", "quit"):
            return
        text += line
        if line.rstrip().endswith(";"):
            yield from statements(text)
            text = ""
    yield from statements(text)


def main(arguments: Sequence[str]) -> int:
    """Run the statements of the command line, or those of standard input; ``arguments``: JOB_DIR or an empty text, then
    the queries. Returns the exit code (`flinkish.error_display`)."""
    if not arguments:
        print("usage: flinkish sql [-e QUERY] [JOB_DIR]", file=sys.stderr)
        return 2
    directory, *queries = arguments
    # PySpark logs each error as a line of JSON
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        spark = session_of(None)
        views = add_views(spark, absolute(directory)) if directory else []
    except FlinkishError as error:
        print(f"flinkish: {error}", file=sys.stderr)
        return 2
    asks = not queries and sys.stdin.isatty()
    if asks:
        print("views: " + ", ".join(f"`{name}`" if "." in name else name for name in views) if views else "no views")
        print("end a statement with a semicolon, and the session with `exit`")
    texts = [] if asks else queries or [sys.stdin.read()]
    for statement in typed(_lines()) if asks else chain.from_iterable(map(statements, texts)):
        try:
            run(spark, statement)
        except (PySparkException, FlinkishError) as error:
            # behind the first line Spark shows the plan
            print(f"flinkish: {str(error).splitlines()[0]}", file=sys.stderr)
            if not asks:
                return 1
    return 0


def _lines() -> Iterator[str]:
    with suppress(EOFError):
        while True:
            yield input("sql> ") + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
