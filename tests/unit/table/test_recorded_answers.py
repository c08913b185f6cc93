"""What Flink answers, flinkish answers: the statements, queries and expressions of `tests/sql`, without Java.

Rule of this file: the expressions of a record are one job, as they were for Flink; only if they fail as one are they
asked one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib

from flinkish.errors import FlinkishError
from flinkish.table import EnvironmentSettings, StreamTableEnvironment, Table
from tests.support import sql_answers
from tests.support.programs import new_environment
from tests.support.sql_answers import ERROR, Record

FILES = sorted(sql_answers.FOLDER.glob("*.test"))
DIFFERENCES = tomllib.loads((sql_answers.FOLDER / "differences.toml").read_text())["difference"]


class Asked:
    """The environment of a file, and what came of its records."""

    def __init__(self, folder: Path) -> None:
        stream = StreamTableEnvironment.create(new_environment(), EnvironmentSettings.in_streaming_mode())
        batch = StreamTableEnvironment.create(new_environment(2), EnvironmentSettings.in_batch_mode())
        self._environments = {False: stream, True: batch}
        self._t_env = stream
        for t_env in self._environments.values():
            t_env.get_config().set("table.local-time-zone", "UTC")
        self._folder = folder
        self.count = 0

    def wrong(self, record: Record) -> Iterator[tuple[str, str]]:
        """What is not as Flink has it."""
        self._t_env = self._environments["batch" in record.words]
        match record.kind:
            case "option":
                for t_env in self._environments.values():
                    t_env.get_config().set(record.words[0], " ".join(record.words[1:]))
            case "table":
                declaration = sql_answers.declared(record, self._folder)
                for t_env in self._environments.values():
                    t_env.execute_sql(declaration)
            case "statement":
                yield from self._refused(record) if record.fails else self._done(record.sql)
            case "query":
                self.count += 1
                yield from self._refused(record) if record.fails else self._query(record)
            case "expressions":
                self.count += len(record.expressions)
                yield from self._expressions(record)

    def _refused(self, record: Record) -> Iterator[tuple[str, str]]:
        try:
            result = self._t_env.execute_sql(record.sql)
            with result.collect() as rows:
                list(rows)
        except FlinkishError:
            return
        yield record.sql, f"is not refused; Flink: {(record.answer or [''])[0]}"

    def _done(self, statement: str) -> Iterator[tuple[str, str]]:
        try:
            self._t_env.execute_sql(statement).wait()
            if statement.lstrip().upper().startswith("CREATE"):
                self._environments[True].execute_sql(statement)
        except Exception as error:
            yield statement, told(error)

    def _query(self, record: Record) -> Iterator[tuple[str, str]]:
        assert record.answer is not None, f"line {record.line} was not recorded"
        try:
            columns, changes = rows_of(self._t_env.sql_query(record.sql))
            rows = sql_answers.materialized((kind, sql_answers.row_text(row)) for kind, row in changes)
            rows = sql_answers.digest(rows) if "digest" in record.words else rows
            found = [sql_answers.columns_text(columns), *rows]
        except Exception as error:
            yield record.sql, told(error)
            return
        if found != record.answer:
            yield record.sql, f"flinkish: {found}\n  Flink:    {record.answer}"
        elif "batch" in record.words and any(kind for kind, _ in changes):
            yield record.sql, "has rows that are not final"

    def _expressions(self, record: Record) -> Iterator[tuple[str, str]]:
        source = f" FROM {record.words[0]}" if record.words else ""
        wanted = dict(record.expressions)
        together = [text for text, answer in wanted.items() if answer is not None and not answer.startswith(ERROR)]
        found: dict[str, str] = {}
        self._answer(together, source, found)
        for text, answer in wanted.items():
            assert answer is not None, f"{text} was not recorded"
            if answer.startswith(ERROR):
                self._answer([text], source, found)
                if not found[text].startswith(ERROR):
                    yield text, f"flinkish: {found[text]}\n  Flink:    {answer}"
            elif found[text] != answer:
                yield text, f"flinkish: {found[text]}\n  Flink:    {answer}"

    def _answer(self, wanted: list[str], source: str, found: dict[str, str]) -> None:
        if not wanted:
            return
        query = "SELECT " + ", ".join(f"{text} AS c{at}" for at, text in enumerate(wanted)) + source
        try:
            columns, changes = rows_of(self._t_env.sql_query(query))
        except Exception as error:
            if len(wanted) == 1:
                assert isinstance(error, FlinkishError), f"{wanted[0]}: {error!r}"
                found[wanted[0]] = ERROR + told(error)
                return
            half = len(wanted) // 2
            self._answer(wanted[:half], source, found)
            self._answer(wanted[half:], source, found)
            return
        for at, text in enumerate(wanted):
            values = " | ".join(sql_answers.text_of(row[at]) for _, row in changes)
            found[text] = f"{columns[at][1]}: {values}"


def told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:300]


def rows_of(table: Table) -> tuple[list[tuple[str, str]], list[tuple[int, list[Any]]]]:
    """The columns with their types, and the changes: pairs of RowKind's number and values."""
    lines = str(table.get_resolved_schema()).splitlines()[1:-1]
    columns = [(name, type_text(kind)) for name, kind in (line.strip(" ,")[1:].split("` ", 1) for line in lines)]
    with table.execute().collect() as rows:
        changes = [(row.get_row_kind().value, list(row)) for row in rows]
    singles = [at for at, (_, kind) in enumerate(columns) if kind == "FLOAT"]
    for _, row in changes:
        for at in singles:
            row[at] = None if row[at] is None else float(str(np.float32(row[at])))
    return columns, changes


def type_text(text: str) -> str:
    for mark in (" NOT NULL", " *ROWTIME*", " *PROCTIME*"):
        text = text.replace(mark, "")
    return text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_answer_is_that_of_flink(path: Path, tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    records = sql_answers.records_of(path)
    wrong = [(record.line, what, how) for record in records for what, how in asked.wrong(record)]
    listed = {text for one in DIFFERENCES for text in one["files"].get(path.stem, ())}
    unknown = [f"line {line}: {what}\n  {how}" for line, what, how in wrong if what not in listed]
    assert not unknown, f"{len(unknown)} of {asked.count} answers differ:\n\n" + "\n\n".join(unknown)
    assert listed <= {what for _, what, _ in wrong}, "some of the listed ones do not differ any more"
