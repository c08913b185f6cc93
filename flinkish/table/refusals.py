"""What tables do not have, of SQL and of the Table API: one row for each construct, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from flinkish.errors import UnsupportedOperationError

#: The words of SQL at which it is noticed, or a name for it in small letters | what it is called ({}: the word) | what
#: there is | what to write.
_REFUSED = """
JOIN INNER LEFT RIGHT FULL CROSS NATURAL | joins are | one table in FROM, which a source may have joined | \
    to_data_stream(a).connect(to_data_stream(b)).key_by(...).process(...)
LATERAL UNNEST | table functions (LATERAL, UNNEST, udtf) are | one table in FROM, a udf and map(...) | \
    to_data_stream(table).flat_map(...)
udaf | aggregate functions in Python (udaf, udtaf) are | COUNT, SUM, AVG, MIN, MAX, LISTAGG and such | STREAM
FOR | lookup joins (FOR SYSTEM_TIME AS OF) are | one table in FROM | \
    AsyncDataStream.unordered_wait(to_data_stream(table), ...)
async | asynchronous functions are | a udf without async | AsyncDataStream.unordered_wait(to_data_stream(table), ...)
MATCH_RECOGNIZE | {} is | GROUP BY and windows | STREAM
TABLESAMPLE | {} is | WHERE | WHERE RAND() < 0.1
OVER WINDOW | OVER aggregates are | GROUP BY, or a window (TUMBLE, HOP, SESSION; Tumble, Slide, Session) | STREAM
rows | windows of rows are | an interval of weeks to milliseconds, such as lit(10).minutes | \
    to_data_stream(table).key_by(...).count_window(n)
ranges | ranges of columns are | the columns, each by its name | select(*[col(name) for name in names])
declaration | SHOW CREATE is | DESCRIBE t | print what your program executes
QUALIFY | {} is | WHERE and HAVING | STREAM
WITHIN IGNORE RESPECT | order and NULLs of aggregate functions are | LISTAGG(x), LAST_VALUE(x), by arrival | STREAM
ORDER | ORDER BY is | a query without it | sort what the sink has stored, or the rows that collect() gives
OFFSET | {} is | LIMIT without it | leave out the rows where the result is read
EXISTS ANY SOME subquery | subqueries in expressions (IN, EXISTS, scalar) are | subqueries in FROM, IN (1, 2) | \
    to_data_stream(a).connect(to_data_stream(b)).key_by(...).process(...)
UNION | UNION without ALL is | UNION ALL | SELECT DISTINCT * FROM (... UNION ALL ...)
INTERSECT EXCEPT MINUS | {} is | UNION ALL, union_all(table) | STREAM
SETS ROLLUP CUBE | GROUPING SETS, ROLLUP and CUBE are | GROUP BY a, b | a SELECT for each, with UNION ALL between
/*+ | hints are | options in the WITH of a table | CREATE TABLE x WITH (...) LIKE t
JSON | clauses of JSON functions are | JSON_VALUE(a, path), IS JSON | JSON_VALUE(a, path RETURNING INT)
OVERWRITE | INSERT OVERWRITE is | INSERT INTO | remove what the target has before the job starts
CONFLICT | ON CONFLICT DO NOTHING and DO ERROR are | ON CONFLICT DO DEDUPLICATE: the last row of a key | \
    GROUP BY the key, with FIRST_VALUE of the other columns
PARTITION PARTITIONED DISTRIBUTED | {} is | tables without partitions | FileSink with a BucketAssigner, or DeltaSink
CTAS | CREATE TABLE ... AS SELECT is | CREATE TABLE and INSERT INTO | write two statements
UNIQUE | {} is | PRIMARY KEY (...) NOT ENFORCED | leave it out
enforced | an ENFORCED key is | PRIMARY KEY (...) NOT ENFORCED | write NOT ENFORCED behind it
language USING | functions of Java are | CREATE FUNCTION f AS 'module.function' LANGUAGE PYTHON | \
    @udf(result_type=...) and create_temporary_function(name, function)
CATALOG CATALOGS DATABASE DATABASES CURRENT USE SCHEMA | catalogs are | default_catalog.default_database | \
    leave it out: all tables are there
LOAD UNLOAD MODULES FULL | modules are | built-in functions, functions of the program | @udf(result_type=...)
MODEL MODELS CALL PROCEDURES | {} is | functions of the program | @udf(result_type=...)
ALTER | {} is | CREATE and DROP | drop it and create it anew
MATERIALIZED | materialized tables are | CREATE TABLE and INSERT INTO | write two statements
UPDATE DELETE MERGE TRUNCATE ANALYZE | {} is | INSERT INTO a table with a PRIMARY KEY | let the database do it
ADD REMOVE JARS | {} is | files that the program is submitted with | env.add_python_file(...)
COMPILE | compiled plans are | execute_sql(...) | t_env.create_statement_set()
STOP JOBS JOB | {} is | execute_sql(...) and its job | table_result.get_job_client()
RAW STRUCTURED VARIANT | the type {} is | BYTES, ROW, ARRAY and MAP | BYTES and a function of the program
zoned | TIMESTAMP WITH TIME ZONE is | TIMESTAMP and TIMESTAMP_LTZ | write TIMESTAMP_LTZ
changelogs | changelogs as columns are | to_changelog_stream(table), from_changelog_stream(stream) | map(...)
Hive | Hive's SQL is | SqlDialect.DEFAULT | leave it out
"""


class Refusal(NamedTuple):
    """What is not supported, what there is, and what to write."""

    what: str
    expected: str
    hint: str


#: By the words of the table.
REFUSALS = {
    word: Refusal(
        f"{name.format(word)} not supported",
        expected,
        hint.replace("STREAM", "to_data_stream(table).key_by(...).process(...)"),
    )
    for words, name, expected, hint in (
        [part.strip() for part in line.split("|")] for line in _REFUSED.strip().split("\n")
    )
    for word in words.split()
}


def refusal(construct: str, where: str) -> UnsupportedOperationError:
    """The error of a call that asks for a construct of the table."""
    what, expected, hint = REFUSALS[construct]
    return UnsupportedOperationError(what, where=where, expected=expected, hint=hint)


def refusing(construct: str, where: str) -> Callable[..., NoReturn]:
    """A function that refuses its calls."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise refusal(construct, where)

    refused.__name__ = where.rpartition(".")[2].removesuffix("()")
    refused.__doc__ = f"Raises UnsupportedOperationError: {REFUSALS[construct].what}."
    return refused


def refuse(owner: type, methods: Mapping[str, str]) -> None:
    """Add methods that refuse their calls to a class. ``methods``: the constructs, with the names of methods."""
    for construct, names in methods.items():
        for name in names.split():
            setattr(owner, name, refusing(construct, f"{owner.__name__}.{name}()"))
